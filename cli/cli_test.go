// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/liqo-go/liqo/cli"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/patience"
)

var update = flag.Bool("update", false, "rewrite the expected sessions of the stories")

// session plays a story: commands of a user and their output.
//
//	$ liqoctl …            output and errors, in order; [1] when it fails; "> FILE" keeps its data below $DIR
//	$ kubectl-liqo …       the same as a plugin of kubectl; $(FILE) is the content of a file below $DIR
//	$ env NAME VALUE       a variable of the environment
//	$ docs PAGE HEADING    runs the commands below a heading of a page of the documents, in $DIR
//	$ proxy rome URL       waits until the control plane's kubeconfig for milan goes through the URL, or none
//	$ keep FILE            writes the archive's FILE to $DIR
//	$ show FILE            prints a file below $DIR
//	$ apply rome FILE      applies objects of the archive's FILE or of one below $DIR, with their status, to a cluster
//	$ ready milan FILE     waits until the objects in FILE are Ready
//	$ served milan G/V/R   waits until clients know a resource whose definition was applied
//	$ once rome FILE TEXT  applies objects to a cluster as soon as the next command has printed TEXT
//	$ delete rome FILE     deletes the objects in FILE
//	$ expire TEXT          lets the time of the next command pass when it has printed TEXT, perhaps with WAIT
//	$ expire rome FILE TEXT  the same, when the objects in FILE exist, too
//	$ gone milan FILE      waits until the objects in FILE are gone
//	$ spec rome FILE       prints the spec of the object in FILE
//	$ left rome            prints the objects of peerings in a cluster
//	$ unchanged rome       fails if an object of a cluster has changed since the last such line
//	$ keys rome milan      creates the key pair of a cluster for a peer
//	$ roles milan          applies the chart's roles for other clusters and peering users
//	$ liqo milan           starts Liqo's controllers of identities
//	$ enter rome milan FILE  makes the kubeconfig FILE below $DIR rome's credentials for milan
//	$ certify milan FILE   signs the request of the Tenant in FILE and writes the certificate to its status
//	$ carry big Accepted   copies rome's slice to milan with rome's rights, and the status back once it is so
//	$ kubernetes milan     starts the controllers of Kubernetes for namespaces and certificates
//	$ nodes rome           makes pods of the mover run and copy, and claims that nobody uses end
//	$ claims rome          prints claims and pods, with the annotations of moves
//	$ become milan FILE    points a kubeconfig below $DIR to the cluster, as the user that it was made for
//	$ stop milan           stops the cluster
//	$ hang milan           writes $DIR/milan-hanging, a kubeconfig whose server never answers
type session struct {
	dir      string
	clusters map[string]*apitest.Server
	// hanging holds the addresses at which clusters never answer, by name.
	hanging map[string]string
	// versions holds the UIDs and versions of the objects of a cluster, at the last "unchanged".
	versions map[string]map[string]string
	// once holds the reaction to the output of the next command.
	once reaction
	// limited, if any, is the context of the next command.
	limited context.Context
}

// reaction is called once, as soon as a command has printed a text; nil do does nothing.
type reaction struct {
	text string
	do   func()
}

// printed collects the output of a command. It runs reactions before the command continues.
type printed struct {
	bytes.Buffer
	once *reaction
}

func (p *printed) Write(b []byte) (int, error) {
	n, err := p.Buffer.Write(b)
	if do := p.once.do; do != nil && strings.Contains(p.String(), p.once.text) {
		p.once.do = nil
		do()
	}
	return n, err
}

// play runs the commands of a session and returns it with their actual output.
func (s *session) play(t *testing.T, archive *txtar.Archive) string {
	t.Helper()
	var out strings.Builder
	for _, line := range strings.Split(string(archive.Files[0].Data), "\n") {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue
		}
		fmt.Fprintln(&out, line)
		words := strings.Fields(command)
		switch words[0] {
		case "liqoctl", "kubectl-liqo":
			out.WriteString(s.liqoctl(t, words))
		case "apply":
			s.apply(t, words[1], s.file(t, archive, words[2]))
		case "once":
			objects := s.file(t, archive, words[2])
			s.once = reaction{strings.Join(words[3:], " "), func() { s.apply(t, words[1], objects) }}
		case "expire":
			s.expire(t, archive, words[1:])
		case "ready":
			s.ready(t, words[1], s.file(t, archive, words[2]))
		case "served":
			s.served(t, words[1], words[2])
		case "env":
			t.Setenv(words[1], strings.ReplaceAll(words[2], "$DIR", s.dir))
		case "proxy":
			s.proxy(t, words[1], words[2])
		case "keep":
			s.keep(t, words[1], s.file(t, archive, words[1]))
		case "docs":
			s.docs(t, words[1], words[2])
		case "delete":
			s.delete(t, words[1], s.file(t, archive, words[2]))
		case "gone":
			s.gone(t, words[1], s.file(t, archive, words[2]))
		case "spec":
			out.WriteString(s.spec(t, words[1], s.file(t, archive, words[2])))
		case "left":
			out.WriteString(s.left(t, words[1]))
		case "unchanged":
			s.unchanged(t, words[1])
		case "keys":
			s.keys(t, words[1], words[2])
		case "roles":
			s.apply(t, words[1], roles(t))
		case "kubernetes":
			s.kubernetes(t, words[1])
		case "liqo":
			s.liqo(t, words[1])
		case "certify":
			s.certify(t, words[1], s.file(t, archive, words[2]))
		case "carry":
			out.WriteString(s.carry(t, words[1], words[2]))
		case "nodes":
			s.nodes(t, words[1])
		case "claims":
			out.WriteString(s.claims(t, words[1]))
		case "enter":
			s.enter(t, words[1], words[2], s.read(t, words[3]))
		case "become":
			s.become(t, words[1], words[2])
		case "hang":
			s.hang(t, words[1])
		case "stop":
			s.clusters[words[1]].Stop()
		case "show":
			out.WriteString(s.hide(string(s.read(t, words[1]))))
		default:
			t.Fatalf("unknown command %q", line)
		}
	}
	return out.String()
}

func (s *session) read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func (s *session) keep(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), data, 0o700); err != nil { // some are commands
		t.Fatal(err)
	}
}

// hide replaces what differs between runs by names.
func (s *session) hide(text string) string {
	text = strings.ReplaceAll(text, s.dir, "$DIR")
	for name, cluster := range s.clusters {
		text = strings.ReplaceAll(text, strings.TrimPrefix(cluster.Config.Host, "https://"), name)
	}
	for name, address := range s.hanging {
		text = strings.ReplaceAll(text, address, name+"-hanging")
	}
	text = waits.ReplaceAllString(text, "")
	return times.ReplaceAllString(random.ReplaceAllString(text, "<random>"), "<time>")
}

// waits matches the lines about what takes long, on a slow machine more than on a fast one.
var waits = regexp.MustCompile(` WAIT   .*\n`)

// times matches the durations that -v prints.
var times = regexp.MustCompile(`\b[0-9]+\.[0-9]{2}s\b`)

// fileContent matches the content of a file in a command.
var fileContent = regexp.MustCompile(`\$\((\w+)\)`)

// random matches the end of a peering user's name, or a nonce.
var random = regexp.MustCompile(`\b[0-9a-f]{32}\b|[0-9A-Za-z+/]{86}==`)

// liqoctl runs one command. After "<" follow the answers of the user, or the name of a file with
// them.
func (s *session) liqoctl(t *testing.T, words []string) string {
	t.Helper()
	input, kept := "", ""
	for len(words) > 2 && strings.Contains("<>", words[len(words)-2]) {
		last := words[len(words)-1]
		if words[len(words)-2] == "<" {
			input = last + "\n"
			if name, ok := strings.CutPrefix(last, "$DIR/"); ok {
				input = string(s.read(t, name))
			}
		} else {
			kept = last
		}
		words = words[:len(words)-2]
	}
	for i, word := range words {
		word = fileContent.ReplaceAllStringFunc(word, func(w string) string { return string(s.read(t, fileContent.FindStringSubmatch(w)[1])) })
		words[i] = strings.Trim(strings.ReplaceAll(word, "$DIR", s.dir), `"`)
	}
	words = patient(words)
	output, data := printed{once: &s.once}, bytes.Buffer{}
	streams := genericiooptions.IOStreams{In: strings.NewReader(input), Out: &output, ErrOut: &output}
	if kept != "" {
		streams.Out = &data
	}
	ctx := t.Context()
	if s.limited != nil {
		ctx, s.limited = s.limited, nil
	}
	code := cli.Run(ctx, words, streams)
	if kept != "" {
		s.keep(t, kept, data.Bytes())
	}
	text := s.hide(output.String())
	if s.once.do != nil {
		lines := strings.Split(strings.TrimSpace(text), "\n")
		t.Fatalf("%swaited until %v says %q; at last it said %q", text, words, s.once.text, lines[len(lines)-1])
	}
	if code != 0 {
		text += fmt.Sprintf("[%d]\n", code)
	}
	return text
}

// patient gives a command that names no time limit the patience of tests.
func patient(words []string) []string {
	cmd, _, err := newRoot(words[0]).Find(words[1:])
	if err != nil || cmd.Flags().Lookup("timeout") == nil || slices.Contains(words, "--timeout") {
		return words
	}
	return slices.Insert(words, 1, "--timeout="+patience.Limit.String()) // the last word may want a value
}

func (s *session) file(t *testing.T, archive *txtar.Archive, name string) []byte {
	t.Helper()
	for _, f := range archive.Files {
		if f.Name == name {
			return f.Data
		}
	}
	return s.read(t, name)
}

// stories runs all stories of a folder; those that do not change the environment run in parallel.
func stories(t *testing.T, folder string, parallel bool, with func(t *testing.T) *session) {
	names, err := filepath.Glob("testdata/" + folder + "/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if parallel && !bytes.Contains(archive.Files[0].Data, []byte("\n$ env ")) {
				t.Parallel()
			}
			got := with(t).play(t, archive)
			if *update {
				archive.Files[0].Data = []byte(got)
				if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if diff := cmp.Diff(string(archive.Files[0].Data), got); diff != "" {
				t.Errorf("the session differs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestArguments: an error before the first request is one line.
func TestArguments(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	stories(t, "arguments", false, func(t *testing.T) *session { return &session{dir: t.TempDir()} })
}

// TestCluster plays sessions with a real API server, on which only liqoctl acts.
func TestCluster(t *testing.T) {
	stories(t, "cluster", true, func(t *testing.T) *session { return newSession(t, "rome") })
}

// TestClusters plays sessions with two real API servers. Only liqoctl acts on them, unless a story
// starts controllers.
func TestClusters(t *testing.T) {
	stories(t, "clusters", true, func(t *testing.T) *session { return newSession(t, "rome", "milan") })
}
