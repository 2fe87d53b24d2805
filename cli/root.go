// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/api/scheme"
)

// Run executes liqoctl with the arguments of the process and returns its exit code: 0, or 1 after
// any error, which it prints.
func Run(ctx context.Context, argv []string, streams genericiooptions.IOStreams) int {
	silence()
	p := newPrinter(streams.ErrOut, streams.Out)
	defer p.clearBusy()
	root := newRoot(ctx, filepath.Base(argv[0]), streams, p)
	root.SetArgs(argv[1:])
	if err := root.ExecuteContext(ctx); err != nil {
		p.erro(noCluster, err)
		return 1
	}
	return 0
}

// silence keeps the client libraries from logging between the lines of liqoctl; they return what
// matters as errors. The standard logger, by which servers report panics, stays as it is.
func silence() {
	writer, flags := stdlog.Writer(), stdlog.Flags()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // also redirects the standard logger
	stdlog.SetOutput(writer)
	stdlog.SetFlags(flags)
	log.SetLogger(klog.Logger{})
	klog.SetLogger(klog.Logger{})
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
}

// env holds what all verbs share.
type env struct {
	genericiooptions.IOStreams
	*printer
	local  access
	scheme *runtime.Scheme
	// interrupted is closed when liqoctl is asked to end; nil = never.
	interrupted <-chan struct{}
	// answerTimeout bounds the wait for an answer to a question; 0 = none.
	answerTimeout time.Duration
	// name is how the user calls the command: "liqoctl" or "kubectl liqo".
	name        string
	verbose     bool
	skipConfirm bool
	// dryRun is set by the flag of the verbs that have it; elsewhere it has no effect.
	dryRun      dryRun
	labels      map[string]string
	annotations map[string]string
}

// Root returns the command tree. The name is that of the executable: as a kubectl plugin it
// shows in help texts as "kubectl liqo".
func Root(name string, streams genericiooptions.IOStreams) *cobra.Command {
	return newRoot(context.Background(), name, streams, newPrinter(streams.ErrOut, streams.Out))
}

// manual says what holds for all commands.
const manual = `liqoctl installs Liqo in a cluster, joins clusters as peers and shows how the
peerings are.

Output: data goes to standard output, lines about the work to standard error:
INFO, WARN and ERRO. On a terminal a line that changes shows what takes time;
elsewhere a line with WAIT names what takes more than half a minute. Only on a
terminal there are colours and other escape sequences, and none if NO_COLOR is
set or TERM is dumb.

Exit code: 0 after success, also with warnings. 1 after any error: wrong
arguments, a cluster that refuses or does not answer, a time that has passed, a
question that was not answered with yes, an interrupt.

Dry run: --dry-run=client changes nothing, asks nothing and says what would be
done; --dry-run=server also lets the API server check it. Verbs that create,
change or delete objects have it. peer, authenticate, network init, network
connect, generate tenant, generate peering-user, move volume and test network
have none: what each of their steps sends depends on what controllers answer to
the one before. install and uninstall have --dry-run=client only: without the
chart's kinds, the API server cannot check the rest of it.

Formats: -o json, yaml or name, as in kubectl; info has -o wide as well. create
and offload print the object with it and create nothing, unless --dry-run=none
is given as well.

Completion: 'liqoctl completion --help' says how shells complete commands,
flags and the names of objects.`

// newRoot is Root for one run that ends with ctx and prints its lines with p.
func newRoot(ctx context.Context, name string, streams genericiooptions.IOStreams, p *printer) *cobra.Command {
	streams.Out = data{p, streams.Out}
	e := &env{interrupted: ctx.Done(), answerTimeout: answerTimeout(streams.In), IOStreams: streams,
		printer: p, scheme: scheme.New(), name: "liqoctl"}
	utilruntime.Must(apiextensionsv1.AddToScheme(e.scheme))
	root := &cobra.Command{
		Use:   "liqoctl",
		Short: "Install Liqo and join clusters",
		Long:  manual,
		Example: "  liqoctl install kubeadm\n  liqoctl peer --remote-kubeconfig milan.yaml\n" +
			"  liqoctl offload namespace shop\n  liqoctl info",
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	if strings.HasPrefix(name, "kubectl-") {
		e.name = "kubectl liqo"
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: e.name}
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	e.addGlobalFlags(root)
	root.AddCommand(e.peerCommand(), e.unpeerCommand(), e.forceCommand(), e.authenticateCommand(),
		e.unauthenticateCommand(),
		e.networkCommand(), e.offloadCommand(), e.unoffloadCommand(), e.moveCommand(), e.infoCommand(), e.whyCommand(),
		e.dashboardCommand(), e.gatherCommand(), e.testCommand(),
		e.installCommand(), e.uninstallCommand(), e.versionCommand())
	root.AddCommand(e.kindCommands()...)
	root.AddCommand(e.cordonCommands()...)
	root.AddCommand(e.approveCommand())
	root.SetHelpCommand(helpCommand())
	root.InitDefaultHelpCmd()
	addCompletionCommand(root)
	root.SetFlagErrorFunc(flagError)
	e.prepare(root)
	return root
}

// prepare gives a command and those below it what all commands have.
func (e *env) prepare(cmd *cobra.Command) {
	if !strings.Contains(cmd.Use, " ") {
		cmd.Args, cmd.ValidArgsFunction = noArguments, cobra.NoFileCompletions
	}
	cmd.Example = strings.ReplaceAll(cmd.Example, "liqoctl ", e.name+" ")
	var first []string
	for _, sub := range cmd.Commands() {
		e.prepare(sub)
		example, _, _ := strings.Cut(sub.Example, "\n")
		first = append(first, example)
	}
	cmd.Example = cmp.Or(cmd.Example, strings.Join(first, "\n"))
	e.completeFlags(cmd)
}

// group returns a command that only has subcommands.
func group(use, short string, aliases ...string) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Aliases: aliases,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
}

func (e *env) addGlobalFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	e.local = addConnectionFlags(flags, "")
	flags.BoolVarP(&e.verbose, "verbose", "v", false, "Show more")
	flags.BoolVar(&e.skipConfirm, "skip-confirm", false, "Do not ask before destructive actions")
	flags.StringToStringVar(&e.labels, "global-labels", map[string]string{api.LabelManaged: api.True},
		"Labels of every object created")
	flags.StringToStringVar(&e.annotations, "global-annotations", nil, "Annotations of every object created")
}

var errAborted = errors.New("action aborted")

// answerTimeout returns how long a question waits for an answer from in: 10 s if that is a file
// without a terminal, such as a pipe that nobody may ever write to, else without end.
func answerTimeout(in io.Reader) time.Duration {
	if _, isFile := in.(*os.File); isFile && !isTerminal(in) {
		return 10 * time.Second
	}
	return 0
}

// confirm asks before the action named by subject, unless --skip-confirm or a dry run is asked for. The end of the
// question differs between verbs, as the documents show it. Without an answer it returns an error
// that names the flag.
func (e *env) confirm(subject, end string) error {
	if e.skipConfirm || e.dry() {
		return nil
	}
	fmt.Fprintf(e.Out, "%s is a potentially destructive command.\nAre you sure you want to continue? [y/N]%s", subject,
		end)
	var answer string
	var err error
	read := make(chan struct{})
	go func() { answer, err = readLine(e.In); close(read) }()
	var tooLate <-chan time.Time // nil never fires
	if e.answerTimeout > 0 {
		tooLate = time.After(e.answerTimeout)
	}
	unanswered := hint(errAborted, "standard input gives no answer; without a terminal, use --skip-confirm")
	select {
	case <-read:
	case <-tooLate:
		return unanswered
	case <-e.interrupted:
		return errAborted
	}
	if err != nil {
		return unanswered
	}
	switch strings.ToLower(answer) {
	case "y", "yes":
		return nil
	}
	return errAborted
}

// readLine reads a line byte by byte, so that the next reader gets what follows.
func readLine(r io.Reader) (string, error) {
	var line strings.Builder
	for b := make([]byte, 1); ; {
		n, err := r.Read(b)
		if n == 1 && b[0] != '\n' {
			line.WriteByte(b[0])
			continue
		}
		if n == 1 || (errors.Is(err, io.EOF) && line.Len() > 0) {
			return strings.TrimSpace(line.String()), nil
		}
		if err != nil {
			return "", fmt.Errorf("read the answer: %w", err)
		}
	}
}

// withDefaults returns own labels or annotations with those of the user that own does not have; nil
// if there are none.
func withDefaults(own, users map[string]string) map[string]string {
	if len(users) == 0 {
		return own
	}
	merged := maps.Clone(users)
	maps.Copy(merged, own)
	return merged
}
