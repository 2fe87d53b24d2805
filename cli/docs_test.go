// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/cli"
	"github.com/liqo-go/liqo/deploy"
)

// block is a piece of a document in one language.
type block struct {
	page, text string
	line       int
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.page, b.line) }

// pages returns the documents whose commands and manifests users copy.
func pages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("../docs/*.md")
	if err != nil || len(names) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	out := map[string]string{}
	examples, err := filepath.Glob("../examples/*/README.md")
	if err != nil || len(examples) < 5 {
		t.Fatalf("found only %d examples: %v", len(examples), err)
	}
	for _, name := range append(append(names, examples...), "../README.md", "../SECURITY.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(text)
	}
	return out
}

// blocks returns the fenced parts of all pages in one language.
func blocks(t *testing.T, language string) []block {
	t.Helper()
	var out []block
	for page, text := range pages(t) {
		out = append(out, blocksOf(t, page, text, language)...)
	}
	if len(out) == 0 {
		t.Fatalf("no blocks of %s", language)
	}
	return out
}

// blocksOf returns the fenced parts of a text in one language.
func blocksOf(t *testing.T, page, text, language string) []block {
	t.Helper()
	var out []block
	inside, wanted := false, false
	for i, line := range strings.Split(text, "\n") {
		switch tag, fence := strings.CutPrefix(line, "```"); {
		case fence:
			inside = !inside
			if wanted = inside && tag == language; wanted {
				out = append(out, block{page: page, line: i + 2})
			}
		case wanted:
			out[len(out)-1].text += line + "\n"
		}
	}
	if inside {
		t.Errorf("%s: the last block has no end", page)
	}
	return out
}

// shells returns the commands that users type, and the script of the demo.
func shells(t *testing.T) []block {
	t.Helper()
	demo, err := os.ReadFile("../demo/run")
	if err != nil {
		t.Fatal(err)
	}
	return append(blocks(t, "console"), block{page: "../demo/run", text: string(demo), line: 1})
}

// unknown stands for values that only the reader knows; it is a valid name, number and amount.
const unknown = "1"

// shell splits as much of the shell's language into words as the documents use. Variables,
// substitutions and <placeholders> become unknown; what a substitution calls is found, too.
type shell struct {
	text  string
	at    int
	word  strings.Builder
	open  bool // a word has begun
	call  []string
	calls [][]string
}

func callsIn(text string) [][]string {
	s := &shell{text: text}
	for s.at < len(s.text) {
		s.step()
	}
	s.endCall()
	return s.calls
}

func (s *shell) step() {
	rest := s.text[s.at:]
	switch c := rest[0]; {
	case strings.HasPrefix(rest, "\\\n"):
		s.endWord()
		s.at += 2 + len(rest[2:]) - len(strings.TrimLeft(rest[2:], " \t"))
	case strings.ContainsRune("\n|&;()", rune(c)):
		s.endCall()
		s.at++
	case c == '#' && !s.open, strings.HasPrefix(rest, "   ") && (s.open || len(s.call) > 0):
		// A comment, or a remark behind a wide gap as in what the demo prints.
		s.endWord()
		s.skip(strings.IndexByte(rest+"\n", '\n'))
	case c == ' ' || c == '\t':
		s.endWord()
		s.at++
	case c == '>':
		s.endWord()
		target := strings.TrimLeft(rest, "> &")
		s.skip(len(rest) - len(target) + strings.IndexAny(target+"\n", " \n)"))
	case c == '$':
		s.expand()
	case c == '<' && strings.Contains(rest, ">"):
		s.write(unknown)
		s.skip(strings.IndexByte(rest, '>') + 1)
	case c == '\'' || c == '"':
		s.quoted(c)
	default:
		s.write(rest[:1])
		s.at++
	}
}

func (s *shell) write(text string) {
	s.open = true
	s.word.WriteString(text)
}

func (s *shell) skip(n int) { s.at += n }

// quoted reads to the end of a quotation; within double quotes it expands "$".
func (s *shell) quoted(mark byte) {
	s.write("")
	for s.at++; s.at < len(s.text) && s.text[s.at] != mark; {
		if mark == '"' && s.text[s.at] == '$' {
			s.expand()
			continue
		}
		s.write(s.text[s.at : s.at+1])
		s.at++
	}
	s.at++
}

var variable = regexp.MustCompile(`^\$(\w+|.)`)

// expand reads what begins with "$".
func (s *shell) expand() {
	s.write(unknown)
	rest := s.text[s.at:]
	if !strings.HasPrefix(rest, "$(") {
		s.skip(max(1, len(variable.FindString(rest))))
		return
	}
	depth, end := 0, 1
	for ; end < len(rest); end++ {
		depth += strings.Count(rest[end:end+1], "(") - strings.Count(rest[end:end+1], ")")
		if depth == 0 {
			break
		}
	}
	s.calls = append(s.calls, callsIn(rest[2:min(end, len(rest))])...)
	s.skip(end + 1)
}

func (s *shell) endWord() {
	if s.open {
		s.call = append(s.call, s.word.String())
	}
	s.word.Reset()
	s.open = false
}

func (s *shell) endCall() {
	s.endWord()
	if len(s.call) > 0 {
		s.calls = append(s.calls, s.call)
	}
	s.call = nil
}

// callsOf returns the arguments of all calls of one program in a piece of shell, also after "run".
func callsOf(program, text string) [][]string {
	var out [][]string
	for _, call := range callsIn(text) {
		if i := slices.Index(call, program); i == 0 || i == 1 && call[0] == "run" {
			out = append(out, call[i+1:])
		}
	}
	return out
}

// TestDocsCommands: every liqoctl command in the documents and the demo exists, its flags exist,
// its values parse and no required flag is missing. Nothing is executed.
func TestDocsCommands(t *testing.T) {
	tried := 0
	for _, b := range shells(t) {
		for _, args := range callsOf("liqoctl", b.text) {
			root := cli.Root("liqoctl", genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard})
			var reached *cobra.Command
			recordCalls(root, &reached)
			root.SetArgs(args)
			if err := root.Execute(); err != nil {
				t.Errorf("%s: liqoctl %s: %v", b, strings.Join(args, " "), err)
			} else if reached == nil || reached.HasSubCommands() && !hasOwnAction(reached) {
				t.Errorf("%s: liqoctl %s: only shows help", b, strings.Join(args, " "))
			}
			tried++
		}
	}
	if tried < 50 {
		t.Errorf("found only %d commands", tried)
	}
}

// recordCalls makes commands parse their arguments and then only report that they were called.
func recordCalls(cmd *cobra.Command, reached **cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		*reached = cmd
		return nil
	}
	for _, sub := range cmd.Commands() {
		recordCalls(sub, reached)
	}
}

// hasOwnAction reports whether a command with subcommands does something itself.
func hasOwnAction(cmd *cobra.Command) bool { return cmd.Name() == "info" || cmd.Name() == "install" }

// builtin holds the kinds of Kubernetes that the documents mention.
var builtin = strings.Fields("configmap csr deployment endpointslices events ingress namespace node nodes pods pv pvc secret service statefulset")

// TestDocsKinds: the kinds in kubectl commands exist, by the names of the
// CustomResourceDefinitions.
func TestDocsKinds(t *testing.T) {
	known := slices.Clone(builtin)
	crds, err := deploy.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range crds {
		n := crd.Spec.Names
		known = append(known, n.Plural, n.Singular, n.Plural+"."+crd.Spec.Group)
		known = append(append(known, n.ShortNames...), n.Categories...)
	}
	verbs := []string{"get", "describe", "annotate", "delete"}
	// These flags precede the verb and have a value.
	before := []string{"--kubeconfig", "-n", "--namespace"}
	for _, b := range shells(t) {
		for _, args := range callsOf("kubectl", b.text) {
			for len(args) > 2 && slices.Contains(before, args[0]) {
				args = args[2:]
			}
			if len(args) < 2 || !slices.Contains(verbs, args[0]) {
				continue
			}
			for _, kind := range strings.Split(args[1], ",") {
				if !slices.Contains(known, kind) {
					t.Errorf("%s: kubectl %s: no kind %q", b, strings.Join(args, " "), kind)
				}
			}
		}
	}
}

// TestDocsManifests: every manifest has only fields of its kind, and an API server accepts it.
// Other YAML is chart values, whose keys the chart has. Configuration of other programs is in blocks
// of "yml".
func TestDocsManifests(t *testing.T) {
	t.Parallel()
	decoder := serializer.NewCodecFactory(scheme.New(), serializer.EnableStrict).UniversalDeserializer()
	values := chartValues(t)
	c := newSession(t, "rome").client(t, "rome")
	for _, b := range blocks(t, "yaml") {
		for _, text := range strings.Split(b.text, "---\n") {
			content := map[string]any{}
			if err := yaml.UnmarshalStrict([]byte(text), &content); err != nil {
				t.Errorf("%s: %v", b, err)
			} else if content["apiVersion"] == nil {
				for _, key := range unknownKeys(content, values, "") {
					t.Errorf("%s: the chart has no value %s", b, key)
				}
			} else if _, _, err := decoder.Decode([]byte(text), nil, nil); err != nil {
				t.Errorf("%s: %v", b, err)
			} else if err := try(t, c, &unstructured.Unstructured{Object: content}); err != nil {
				t.Errorf("%s: %v", b, err)
			}
		}
	}
}

// try creates an object as a dry run, in an existing namespace if the object has one.
func try(t *testing.T, c client.Client, object *unstructured.Unstructured) error {
	t.Helper()
	if object.GetNamespace() != "" {
		object.SetNamespace(metav1.NamespaceDefault)
	}
	return c.Create(t.Context(), object, client.DryRunAll)
}

// TestGitOps: the layout for GitOps has only objects of Liqo whose fields exist, each in the folder
// of its cluster, in the tenant namespace for the other one and with its label.
func TestGitOps(t *testing.T) {
	decoder := serializer.NewCodecFactory(scheme.New(), serializer.EnableStrict).UniversalDeserializer()
	for folder, peer := range map[string]string{"rome": "milan", "milan": "rome"} {
		names, err := filepath.Glob("../examples/gitops/" + folder + "/*.yaml")
		if err != nil || len(names) < 3 {
			t.Fatalf("%d files for %s: %v", len(names), folder, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, manifest := range strings.Split(string(text), "---\n") {
				decoded, _, err := decoder.Decode([]byte(manifest), nil, nil)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				object := decoded.(client.Object)
				if in := object.GetNamespace(); in != "" && in != "demo" && in != api.TenantNamespace(peer) {
					t.Errorf("%s: %s lies in %s", name, object.GetName(), in)
				}
				if label := object.GetLabels()[api.LabelRemoteClusterID]; label != peer && !slices.Contains([]string{"offloading", api.BindingRemoteControlPlane}, object.GetName()) {
					t.Errorf("%s: %s is labelled %q", name, object.GetName(), label)
				}
			}
		}
	}
}

var (
	// setting matches a key in the value of --set.
	setting = regexp.MustCompile(`(?:^|,)([\w.]+)=`)
	// named matches a row of a table of values, and the keys in its first column.
	named = regexp.MustCompile("`([a-zA-Z.]+)(?:=[^`]*)?`")
)

// TestDocsValues: every chart value that --set or a table of values names exists.
func TestDocsValues(t *testing.T) {
	values := chartValues(t)
	check := func(at, key string) {
		t.Helper()
		nested := map[string]any{}
		if err := yaml.Unmarshal([]byte(nestedYAML(key)), &nested); err != nil {
			t.Fatal(err)
		}
		for _, key := range unknownKeys(nested, values, "") {
			t.Errorf("%s: the chart has no value %s", at, key)
		}
	}
	for _, b := range shells(t) {
		for _, args := range callsOf("liqoctl", b.text) {
			for i, arg := range args {
				if i > 0 && (args[i-1] == "--set" || args[i-1] == "--set-string") {
					for _, key := range setting.FindAllStringSubmatch(arg, -1) {
						check(b.String(), key[1])
					}
				}
			}
		}
	}
	tabled := 0
	for page, text := range pages(t) {
		inside := false
		for _, line := range strings.Split(text, "\n") {
			inside = strings.HasPrefix(line, "| value |") || inside && strings.HasPrefix(line, "|")
			if !inside {
				continue
			}
			for _, key := range named.FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
				check(page, key[1])
				tabled++
			}
		}
	}
	if tabled == 0 {
		t.Error("no table of values")
	}
}

// nestedYAML writes a.b.c as nested YAML with an empty value.
func nestedYAML(key string) string {
	out := ""
	for i, part := range strings.Split(key, ".") {
		out += strings.Repeat(" ", i) + part + ":\n"
	}
	return out
}

func chartValues(t *testing.T) map[string]any {
	t.Helper()
	files, err := deploy.ChartFiles()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(files["values.yaml"], &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// unknownKeys returns the keys that known does not have. Below an empty map every key is allowed.
func unknownKeys(given, known map[string]any, path string) []string {
	var out []string
	for key, value := range given {
		have, ok := known[key]
		if !ok && (len(known) > 0 || path == "") {
			out = append(out, path+key)
			continue
		}
		inner, isMap := value.(map[string]any)
		if have, wasMap := have.(map[string]any); isMap && wasMap {
			out = append(out, unknownKeys(inner, have, path+key+".")...)
		}
	}
	return out
}

// TestDocsIndex: the start page names every page.
func TestDocsIndex(t *testing.T) {
	all := pages(t)
	for page := range all {
		folder, name := filepath.Split(page)
		if folder == "../docs/" && name != "README.md" && !strings.Contains(all["../docs/README.md"], "]("+name+")") {
			t.Errorf("docs/README.md does not name %s", name)
		}
	}
}

// TestReferenceFlags: the reference of each command shows its visible flags, those of its parents included.
func TestReferenceFlags(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(string(page), "\n## ") {
		title, text, _ := strings.Cut(section, "\n")
		sections[title] = text
	}
	root := newRoot("liqoctl")
	for path, cmd := range verbs(root) {
		if path == "help" { // cobra does not count it among the commands
			continue
		}
		shown := sections["# liqoctl"] + sections["liqoctl "+path]
		cmd.InheritedFlags() // adds them to Flags
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" && !strings.Contains(shown, "| `--"+f.Name+"`") {
				t.Errorf("the reference of %s lacks --%s", path, f.Name)
			}
		})
	}
}
