// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/liqo-go/liqo/cli"
)

// The tables below hold the verbs that lack a habit, with the reason. A new verb has all habits or
// stands here.
const (
	changesNothing = "it changes no cluster"
	dependsOnReply = "each step needs what controllers answer to the one before"
	notAnObject    = "it prints no object, and its counterpart of kubectl has no -o"
	cloudOwns      = "a name in the cloud"
	notAName       = "no name of anything"
	aFile          = "a file, which shells complete"
	invented       = "a name that the user invents"
	aScript        = "it prints a script"
)

// withoutDryRun holds the verbs without --dry-run.
var withoutDryRun = map[string]string{
	"dashboard": changesNothing, "gather": changesNothing, "info": changesNothing, "info peer": changesNothing, "version": changesNothing,
	"why": changesNothing, "get kubeconfig": changesNothing, "get nonce": changesNothing, "generate configuration": changesNothing,
	"generate identity": changesNothing, "generate publickey": changesNothing, "help": changesNothing,
	"completion bash": changesNothing, "completion fish": changesNothing, "completion powershell": changesNothing,
	"completion zsh": changesNothing,
	"authenticate":   dependsOnReply, "generate tenant": dependsOnReply, "generate peering-user": dependsOnReply, "move volume": dependsOnReply,
	"network connect": dependsOnReply, "network init": dependsOnReply, "peer": dependsOnReply, "test network": dependsOnReply,
}

// withoutOutput holds the verbs without --output.
var withoutOutput = map[string]string{
	"activate tenant": notAnObject, "authenticate": notAnObject, "cordon resourceslice": notAnObject, "cordon tenant": notAnObject,
	"dashboard": notAnObject, "drain tenant": notAnObject, "force unpeer": notAnObject, "move volume": notAnObject,
	"network connect": notAnObject, "network disconnect": notAnObject, "network init": notAnObject, "network reset": notAnObject,
	"peer": notAnObject, "test network": notAnObject, "unauthenticate": notAnObject, "uncordon resourceslice": notAnObject,
	"uncordon tenant": notAnObject, "uninstall": notAnObject, "unpeer": notAnObject,
	"gather":  "it writes an archive, and -o is its file",
	"install": "--only-output-values writes the values", "install aks": "see install", "install eks": "see install",
	"install generic": "see install", "install gke": "see install", "install k3s": "see install", "install kind": "see install",
	"install kubeadm": "see install", "install openshift": "see install",
	"generate peering-user": "it prints a kubeconfig", "help": "it prints no data",
	"completion bash": aScript, "completion fish": aScript, "completion powershell": aScript, "completion zsh": aScript,
}

// withoutCompletion holds the flags with texts that are not completed.
var withoutCompletion = map[string]string{
	"kubeconfig": aFile, "remote-kubeconfig": aFile, "remote-kubeconfigs": aFile, "values": aFile, "local-chart-path": aFile,
	"dump-values-path": aFile, "credentials-path": aFile, "output-file": aFile, "bundle": aFile,
	"cluster-id": invented, "remote-namespace-name": invented, "user-name": invented, "policy-name": invented,
	"eks-cluster-name": cloudOwns, "eks-cluster-region": cloudOwns, "access-key-id": cloudOwns, "fqdn": cloudOwns, "project-id": cloudOwns,
	"region": cloudOwns, "zone": cloudOwns, "resource-group-name": cloudOwns, "resource-name": cloudOwns, "subscription-id": cloudOwns,
	"subscription-name": cloudOwns, "vnet-resource-group-name": cloudOwns, "secret-access-key": notAName,
	"addresses": notAName, "api-server-url": notAName, "gw-client-address": notAName, "gw-server-service-loadbalancerip": notAName,
	"load-balancer-ip": notAName, "ip-address": notAName, "proxy-url": notAName, "repo-url": notAName, "version": notAName,
	"nonce": notAName, "cpu": notAName, "memory": notAName, "pods": notAName, "resource": notAName,
	"containers-cpu-limits": notAName, "containers-cpu-requests": notAName, "containers-ram-limits": notAName,
	"containers-ram-requests": notAName, "set": notAName, "set-string": notAName,
	"cluster-labels": notAName, "global-annotations": notAName, "global-labels": notAName, "labels": notAName,
	"node-selector": notAName, "ns-selector": notAName, "selector": notAName,
	"restic-image": "it has no effect", "restic-server-image": "it has no effect",
	"runtime-class-name": "a name at the provider, which does not publish it",
}

// contactsNothing reports whether a command needs no cluster.
func contactsNothing(cmd *cobra.Command) bool {
	return cmd.Name() == "help" || cmd.Parent().Name() == "completion"
}

// newRoot returns the command tree, whose output is discarded.
func newRoot(name string) *cobra.Command {
	return cli.Root(name, genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard})
}

// verbs returns the commands that do something themselves, by their path without "liqoctl".
func verbs(root *cobra.Command) map[string]*cobra.Command {
	out := map[string]*cobra.Command{}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() || hasOwnAction(cmd) {
			out[strings.TrimPrefix(cmd.CommandPath(), root.CommandPath()+" ")] = cmd
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
	return out
}

// TestHabits: every verb has the habits of kubectl, or says why it lacks one.
func TestHabits(t *testing.T) {
	all, flags := verbs(newRoot("liqoctl")), map[string]bool{}
	for path, cmd := range all {
		for flag, without := range map[string]map[string]string{"dry-run": withoutDryRun, "output": withoutOutput} {
			if has := cmd.Flag(flag) != nil && cmd.Flag(flag).Name == flag; has == (without[path] != "") {
				t.Errorf("%s has --%s: %t, but the table says %q", path, flag, has, without[path])
			}
		}
		if cmd.Short == "" || cmd.Example == "" {
			t.Errorf("%s has no short help or no example", path)
		}
		_, argument, has := strings.Cut(cmd.Use, " ")
		created := strings.HasPrefix(path, "create ") // a new name
		if completes := cmd.ValidArgsFunction != nil && !sameFunction(cmd.ValidArgsFunction, cobra.NoFileCompletions); completes != (has && !created) {
			t.Errorf("%s completes %q: %t", path, argument, completes)
		}
		cmd.InheritedFlags() // adds them to Flags
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			flags[f.Name] = true
			kind := f.Value.Type()
			text := strings.HasPrefix(kind, "string") || kind == "clusterID" || strings.Contains(kind, "|")
			if f.Hidden || !text {
				return
			}
			if _, completed := cmd.GetFlagCompletionFunc(f.Name); completed == (withoutCompletion[f.Name] != "") {
				t.Errorf("%s completes --%s: %t, but the table says %q", path, f.Name, completed, withoutCompletion[f.Name])
			}
		})
	}
	for _, table := range []map[string]string{withoutDryRun, withoutOutput} {
		for path := range table {
			if all[path] == nil {
				t.Errorf("there is no verb %s", path)
			}
		}
	}
	for name := range withoutCompletion {
		if !flags[name] && name != "bundle" {
			t.Errorf("there is no flag --%s", name)
		}
	}
}

func sameFunction(a, b any) bool { return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer() }

// TestCreatedIsDeleted: what create makes, delete removes by the same words.
func TestCreatedIsDeleted(t *testing.T) {
	all := verbs(newRoot("liqoctl"))
	for path, create := range all {
		noun, ok := strings.CutPrefix(path, "create ")
		if !ok {
			continue
		}
		remove := all["delete "+noun]
		if remove == nil || remove.Use != create.Use || !slices.Equal(remove.Aliases, create.Aliases) || remove.Flag("remote-cluster-id") == nil {
			t.Errorf("%s is not deleted by the same words", noun)
		}
	}
	for do, undo := range map[string]string{"peer": "unpeer", "authenticate": "unauthenticate", "offload namespace": "unoffload namespace",
		"network connect": "network disconnect", "network init": "network reset", "install": "uninstall", "cordon tenant": "uncordon tenant",
		"cordon resourceslice": "uncordon resourceslice", "drain tenant": "activate tenant", "generate peering-user": "delete peering-user"} {
		if all[do] == nil || all[undo] == nil {
			t.Errorf("%s or %s does not exist", do, undo)
		}
	}
}

// TestExamples: every example is a call of its command that parses, also by the name of a plugin of
// kubectl.
func TestExamples(t *testing.T) {
	var roots []*cobra.Command // one for each example of a command, since flags stay set
	for path, cmd := range verbs(newRoot("kubectl-liqo")) {
		for i, line := range slices.Collect(strings.Lines(cmd.Example)) {
			calls := callsOf("kubectl", line)
			if !strings.HasPrefix(line, "  kubectl liqo "+path) || len(calls) != 1 {
				t.Errorf("%q is no example of %s", line, path)
				continue
			}
			if i == len(roots) {
				roots = append(roots, newRoot("liqoctl"))
			}
			reached := (*cobra.Command)(nil)
			recordCalls(roots[i], &reached)
			roots[i].SetArgs(calls[0][1:])
			if err := roots[i].Execute(); err != nil || reached.CommandPath() != "liqoctl "+path {
				t.Errorf("%q: %v", line, err)
			}
		}
	}
}

// TestHelp: help shows of each verb what its flag --help shows.
func TestHelp(t *testing.T) {
	help := func(args ...string) string {
		var out bytes.Buffer
		if code := cli.Run(t.Context(), append([]string{"liqoctl"}, args...),
			genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}); code != 0 {
			t.Errorf("%q ended with %d", args, code)
		}
		return out.String()
	}
	for path := range verbs(newRoot("liqoctl")) {
		words := strings.Fields(path)
		if got, want := help(append([]string{"help"}, words...)...), help(append(words, "--help")...); got != want {
			t.Errorf("help %s shows\n%s\nbut --help\n%s", path, got, want)
		}
	}
}

// watched collects output until a line about a long wait comes, and calls then.
type watched struct {
	bytes.Buffer
	then func()
}

func (w *watched) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, []byte(" WAIT   ")) {
		w.then()
	}
	return w.Buffer.Write(b)
}

// TestProgress: whatever a verb asks of a cluster that does not answer, a line says so after the time
// that waits are named after, an interrupt ends it, and no output without a terminal has escape sequences.
func TestProgress(t *testing.T) {
	t.Parallel()
	skip := map[string]bool{"install aks": true, "install eks": true, "install gke": true} // they ask a cloud
	var running sync.WaitGroup
	for path, cmd := range verbs(newRoot("liqoctl")) {
		if skip[path] || contactsNothing(cmd) {
			continue
		}
		example, _, _ := strings.Cut(cmd.Example, "\n")
		args := append(callsOf("liqoctl", strings.ReplaceAll(example, " --client", ""))[0], "--skip-confirm")
		kubeconfig := silentCluster(t)
		args = append(args, "--kubeconfig", kubeconfig)
		for i, arg := range args {
			if arg == "milan.yaml" {
				args[i] = kubeconfig
			}
		}
		running.Go(func() {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			waits := false
			out := &watched{then: func() { waits = true; stop() }}
			streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: out, ErrOut: out}
			code := cli.Run(ctx, append([]string{"liqoctl"}, args...), streams)
			if !waits || code != 1 || strings.Contains(out.String(), "\x1b") {
				t.Errorf("liqoctl %s ended with %d and printed %q", strings.Join(args, " "), code, out.String())
			}
		})
	}
	running.Wait()
}

// silentCluster returns a kubeconfig whose server accepts connections and does not answer.
func silentCluster(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, nobody reads
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // nothing is left to do
	path := filepath.Join(t.TempDir(), "silent")
	content := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], "+
		"clusters: [{name: c, cluster: {server: \"http://%s\"}}]}", listener.Addr())
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
