// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/liqo-go/liqo/cli"
	"github.com/liqo-go/liqo/internal/apitest"
)

var update = flag.Bool("update", false, "rewrite the expected sessions of the stories")

// session is a story: what a user types and what appears.
//
//	$ liqoctl …            output and errors, in order; [1] when it fails; "> FILE" keeps its data below $DIR
//	$ kubectl-liqo …       the same as a plugin of kubectl; $(FILE) is what a file below $DIR holds
//	$ env NAME VALUE       a variable of the environment
//	$ docs PAGE HEADING    what a page of the documents tells the user to type below a heading, in $DIR
//	$ proxy rome URL       waits until the control plane's kubeconfig for milan goes through the URL, or none
//	$ keep FILE            the archive's FILE goes to $DIR
//	$ show FILE            a file below $DIR
//	$ apply rome FILE      objects of the archive's FILE or of one below $DIR, with their status, go to a cluster
//	$ ready milan FILE     waits until the objects in FILE are Ready
//	$ served milan G/V/R   waits until clients know a resource whose definition was applied
//	$ once rome FILE TEXT  objects go to a cluster as soon as the next command has said TEXT
//	$ delete rome FILE     and go away
//	$ gone milan FILE      waits until the objects in FILE are no more
//	$ spec rome FILE       the spec of the object in FILE
//	$ left rome            what of a peering is there
//	$ keys rome milan      the key with which a cluster proves to a peer who it is
//	$ roles milan          the chart's roles of other clusters and peering users go to a cluster
//	$ liqo milan           Liqo's controllers of identities run
//	$ enter rome milan FILE  rome's credentials for milan are the kubeconfig FILE below $DIR
//	$ certify milan FILE   what the Tenant in FILE asks for is signed, and in its status
//	$ carry big Accepted   rome's slice goes to milan with rome's rights, and its answer, once it is so, comes back
//	$ kubernetes milan     Kubernetes' controllers of namespaces and certificates run
//	$ nodes rome           pods of the mover run and copy, claims nobody uses end
//	$ claims rome          what claims and pods there are, with the marks of moves
//	$ become milan FILE    a kubeconfig below $DIR leads to the cluster, as the user it was made for
//	$ stop milan           the cluster is gone
//	$ hang milan           $DIR/milan-hanging leads to the cluster, but nothing ever answers
type session struct {
	dir      string
	clusters map[string]*apitest.Server
	// hanging are the addresses at which clusters never answer.
	hanging map[string]string
	// once is for the next command.
	once reaction
}

// reaction is what is done, once, as soon as a command has said a text; without do, nothing.
type reaction struct {
	text string
	do   func()
}

// printed is what a command says; what is done about it is done before the command goes on.
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

// play runs the commands of a session and returns it with what they really print.
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
	if err := os.WriteFile(filepath.Join(s.dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// hide puts names in the place of what differs from run to run.
func (s *session) hide(text string) string {
	text = strings.ReplaceAll(text, s.dir, "$DIR")
	for name, cluster := range s.clusters {
		text = strings.ReplaceAll(text, strings.TrimPrefix(cluster.Config.Host, "https://"), name)
	}
	for name, address := range s.hanging {
		text = strings.ReplaceAll(text, address, name+"-hanging")
	}
	return times.ReplaceAllString(random.ReplaceAllString(text, "<random>"), "<time>")
}

// times are those that -v shows.
var times = regexp.MustCompile(`\b[0-9]+\.[0-9]{2}s\b`)

// held is the content of a file in a command.
var held = regexp.MustCompile(`\$\((\w+)\)`)

// random is the end of a peering user's name, or a nonce.
var random = regexp.MustCompile(`\b[0-9a-f]{32}\b|[0-9A-Za-z+/]{86}==`)

// liqoctl runs one command; answers of the user follow "<", or the name of a file that holds them.
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
		word = held.ReplaceAllStringFunc(word, func(w string) string { return string(s.read(t, held.FindStringSubmatch(w)[1])) })
		words[i] = strings.Trim(strings.ReplaceAll(word, "$DIR", s.dir), `"`)
	}
	said, data := printed{once: &s.once}, bytes.Buffer{}
	streams := genericiooptions.IOStreams{In: strings.NewReader(input), Out: &said, ErrOut: &said}
	if kept != "" {
		streams.Out = &data
	}
	code := cli.Run(t.Context(), words, streams)
	if kept != "" {
		s.keep(t, kept, data.Bytes())
	}
	text := s.hide(said.String())
	if s.once.do != nil {
		t.Fatalf("%v did not say %q:\n%s", words, s.once.text, text)
	}
	if code != 0 {
		text += fmt.Sprintf("[%d]\n", code)
	}
	return text
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

// stories runs all stories of a folder, in parallel those that do not change the environment.
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

// TestArguments: what goes wrong before any cluster is asked is one clear line.
func TestArguments(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	stories(t, "arguments", false, func(t *testing.T) *session { return &session{dir: t.TempDir()} })
}

// TestCluster: sessions with a real API server, on which nothing but liqoctl acts.
func TestCluster(t *testing.T) {
	stories(t, "cluster", true, func(t *testing.T) *session { return newSession(t, "rome") })
}

// TestClusters: sessions with two real API servers. Nothing but liqoctl acts there, unless the
// story says so.
func TestClusters(t *testing.T) {
	stories(t, "clusters", true, func(t *testing.T) *session { return newSession(t, "rome", "milan") })
}
