// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package law

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	persistsFile = "testdata/persists.txt"
	// unknown stands for what a text gets at run time.
	unknown = "…"
	// deepest bounds how many constants and functions are followed for one text.
	deepest = 8
)

// TestWhatPersistsKeepsItsName compares the names that stay in clusters and kernels when a new version takes over, and
// those that users' scripts and peers know, with a list. A controller's name is prune label and field manager: objects
// made under a former name are neither pruned nor updated. So no line of the list is changed without a tested
// migration; 'go test ./internal/law -update' writes it.
func TestWhatPersistsKeepsItsName(t *testing.T) {
	got := persisting(t)
	if *update {
		if err := os.WriteFile(persistsFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(persistsFile)
	if err != nil {
		t.Fatal(err)
	}
	is, was := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for _, line := range was {
		if !slices.Contains(is, line) {
			t.Errorf("%q is not in the code any more, and clusters have it: keep it, or migrate it and test that", line)
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			t.Errorf("%q is new and will persist; run 'go test ./internal/law -update' and review the difference", line)
		}
	}
}

// section is one kind of names. Lines are "room name", so that a name that two rooms share is listed for each.
type section struct {
	title string
	lines map[string]bool
}

func (s section) add(s2 *source, text string) {
	if letters.MatchString(text) {
		s.lines[top(s2.dir)+"\t"+text] = true
	}
}

// persisting lists everything that persists.
func persisting(t *testing.T) string {
	t.Helper()
	c := newCollector(sources(t))
	for _, s := range sources(t) {
		// These leave nothing in clusters.
		if !slices.Contains([]string{"lint", "deploy/release", "view", "dashboard"}, s.dir) {
			c.collect(s)
		}
	}
	var out strings.Builder
	for _, s := range append(c.sections(), kernelNames(t)) {
		fmt.Fprintf(&out, "# %s\n", s.title)
		for _, line := range slices.Sorted(maps.Keys(s.lines)) {
			out.WriteString(line + "\n")
		}
		out.WriteString("\n")
	}
	return out.String()
}

// collector finds names in the code.
type collector struct {
	values    map[string]map[string]declared[ast.Expr] // constants and variables of a package, by directory and name
	functions map[string]map[string]declared[*ast.FuncDecl]

	controllers, managers, keys, names, secrets, reasons section
}

// declared is a declaration with the file it is in.
type declared[D any] struct {
	is D
	in *source
}

func newCollector(all []*source) *collector {
	c := &collector{
		values:    map[string]map[string]declared[ast.Expr]{},
		functions: map[string]map[string]declared[*ast.FuncDecl]{},
	}
	for _, s := range []struct {
		to    *section
		title string
	}{
		{&c.controllers, "Controllers: prune label and field manager liqo/<name>, and liqo/<name>-conditions"},
		{&c.managers, "Field managers of others, and sockets"},
		{&c.keys, "Labels, annotations, finalizers, taints, signers, API groups"},
		{&c.names, "Names of objects, leases and devices; " + unknown + " stands for what is known at run time"},
		{&c.secrets, "Keys of Secrets and ConfigMaps"},
		{&c.reasons, "Reasons and types of conditions and events, values of labels and fields, kinds"},
	} {
		*s.to = section{s.title, map[string]bool{}}
	}
	for _, s := range all {
		if c.values[s.dir] == nil {
			c.values[s.dir], c.functions[s.dir] = map[string]declared[ast.Expr]{}, map[string]declared[*ast.FuncDecl]{}
		}
		for _, d := range s.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Body != nil {
					c.functions[s.dir][d.Name.Name] = declared[*ast.FuncDecl]{d, s}
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok && len(v.Values) == len(v.Names) {
						for i, name := range v.Names {
							c.values[s.dir][name.Name] = declared[ast.Expr]{v.Values[i], s}
						}
					}
				}
			}
		}
	}
	return c
}

func (c *collector) sections() []section {
	return []section{c.controllers, c.managers, c.keys, c.names, c.secrets, c.reasons}
}

var (
	camelCase = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*$`)
	letters   = regexp.MustCompile(`[A-Za-z]{2}`)
	// objectName is a name of several words, some of which may be unknown.
	objectName = regexp.MustCompile(`^[a-z0-9` + unknown + `][a-z0-9` + unknown + `]*([.:-][a-z0-9` + unknown + `]+)+$`)
)

// collect adds the names of a file.
func (c *collector) collect(s *source) {
	ast.Inspect(s.File, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			return n.Tag == nil
		case *ast.CompositeLit:
			c.literal(s, n)
		case *ast.IndexExpr:
			of, ok := n.X.(*ast.SelectorExpr)
			if ok && (of.Sel.Name == "Data" || of.Sel.Name == "StringData") {
				c.secrets.add(s, c.fold(s, n.Index, 0))
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "FieldOwner" && len(n.Args) == 1 {
				c.managers.add(s, c.fold(s, n.Args[0], 0))
			}
			return fmt.Sprint(n.Fun) != "&{fmt Sprintf}" || !c.text(s, n)
		case *ast.BinaryExpr:
			return !c.text(s, n)
		case *ast.BasicLit:
			c.text(s, n)
		}
		return true
	})
}

// literal adds what persists by its position: names of controllers and objects, keys of Secrets.
func (c *collector) literal(s *source, lit *ast.CompositeLit) {
	if m, ok := lit.Type.(*ast.MapType); ok && fmt.Sprint(m.Key) == "string" {
		if bytes, ok := m.Value.(*ast.ArrayType); ok && fmt.Sprint(bytes.Elt) == "byte" {
			for _, e := range lit.Elts {
				if pair, ok := e.(*ast.KeyValueExpr); ok {
					c.secrets.add(s, c.fold(s, pair.Key, 0))
				}
			}
		}
	}
	of := lit.Type
	if index, ok := of.(*ast.IndexListExpr); ok {
		of = index.X
	}
	selector, ok := of.(*ast.SelectorExpr)
	if !ok {
		return
	}
	for _, e := range lit.Elts {
		pair, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch key := fmt.Sprint(pair.Key); {
		case selector.Sel.Name == "Controller" && key == "Name":
			c.controllers.add(s, c.fold(s, pair.Value, 0))
		case selector.Sel.Name == "ObjectMeta" && (key == "Name" || key == "GenerateName"), key == "LeaderElectionID":
			if _, call := pair.Value.(*ast.CallExpr); !call { // its function is listed where it is declared
				c.names.add(s, c.fold(s, pair.Value, 0))
			}
		}
	}
}

// text adds what persists by its form, and reports whether it was a text.
func (c *collector) text(s *source, e ast.Expr) bool {
	text := c.fold(s, e, 0)
	_, whole := e.(*ast.BasicLit)
	switch {
	case strings.Trim(text, unknown) == "":
		return false
	case strings.HasPrefix(text, "liqo/"), strings.HasPrefix(text, "@"):
		c.managers.add(s, text)
	case strings.Contains(text, "liqo.io") && !strings.ContainsAny(text, " %"):
		c.keys.add(s, text)
	case camelCase.MatchString(text) && top(s.dir) != "cli":
		c.reasons.add(s, text)
	case objectName.MatchString(text) && (!whole || s.dir == "api"),
		strings.HasPrefix(text, "liqo") && top(s.dir) != "cli" && !strings.Contains(text, " "):
		c.names.add(s, text)
	}
	return true
}

// fold returns the text of an expression, with unknown for its parts that are known at run time only.
func (c *collector) fold(s *source, e ast.Expr, depth int) string {
	if depth > deepest {
		return unknown
	}
	depth++
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			text, _ := strconv.Unquote(e.Value)
			return text
		}
	case *ast.ParenExpr:
		return c.fold(s, e.X, depth)
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return merge(c.fold(s, e.X, depth) + c.fold(s, e.Y, depth))
		}
	case *ast.Ident:
		if v, ok := c.values[s.dir][e.Name]; ok {
			return c.fold(v.in, v.is, depth)
		}
	case *ast.SelectorExpr:
		if dir, ok := s.imports[fmt.Sprint(e.X)]; ok {
			if v, ok := c.values[dir][e.Sel.Name]; ok {
				return c.fold(v.in, v.is, depth)
			}
		}
	case *ast.CallExpr:
		return c.call(s, e, depth)
	}
	return unknown
}

// call folds a call of fmt.Sprintf, of a conversion or of a function of ours.
func (c *collector) call(s *source, call *ast.CallExpr, depth int) string {
	dir, name := s.dir, ""
	switch f := call.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		dir, name = s.imports[fmt.Sprint(f.X)], f.Sel.Name
	}
	if f, ok := c.functions[dir][name]; ok {
		for _, statement := range f.is.Body.List {
			if r, ok := statement.(*ast.ReturnStmt); ok && len(r.Results) == 1 {
				return c.fold(f.in, r.Results[0], depth)
			}
		}
		return unknown
	}
	switch {
	case name == "Sprintf":
		parts := strings.Split(verb.ReplaceAllString(c.fold(s, call.Args[0], depth), "\x00"), "\x00")
		text := parts[0]
		for i, part := range parts[1:] {
			argument := unknown
			if i+1 < len(call.Args) {
				argument = c.fold(s, call.Args[i+1], depth)
			}
			text += argument + part
		}
		return merge(text)
	case name == "string" && len(call.Args) == 1:
		return c.fold(s, call.Args[0], depth)
	}
	return unknown
}

var verb = regexp.MustCompile(`%[-+#0-9.]*[a-z]`)

func merge(text string) string { return strings.ReplaceAll(text, unknown+unknown, unknown) }

// kernelName is found in the lines of a state, like "rule ipv4 90: not from all iif lo lookup 6091".
var kernelName = regexp.MustCompile(`(?m)^link liqo\S*(?: vxlan id \d+)?|^rule \S+ \d+:|(?:table|lookup) \d+|` +
	`fwmark \S+|^table \S+ \S+|\bchain [a-z-]+`)

// kernelNames lists what stays in the kernel of a node when its process is replaced, as the stories of network/plan
// have it.
func kernelNames(t *testing.T) section {
	t.Helper()
	s := section{"Devices, rules, routing tables, marks; tables and chains of nft", map[string]bool{}}
	for _, story := range texts(t, "network/plan/testdata/kernel/*.txtar", 20) {
		_, state, _ := strings.Cut(story, "-- state.txt --\n")
		for _, found := range kernelName.FindAllString(state, -1) {
			s.lines["network\t"+found] = true
		}
	}
	return s
}

// TestLinesThatScriptsKnow searches the code of liqoctl for the lines of testdata/lines.txt, which scripts know. It
// finds those that are put together as well, if most of a line is in one place.
func TestLinesThatScriptsKnow(t *testing.T) {
	c, printed := newCollector(sources(t)), map[string]bool{}
	for _, s := range sources(t) {
		if top(s.dir) != "cli" {
			continue
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				for part := range strings.SplitSeq(verb.ReplaceAllString(c.fold(s, e, 0), unknown), "\n") {
					printed[part] = true
				}
			}
			return true
		})
	}
	lines := strings.Split(strings.TrimSpace(readRoot(t, "internal/law/testdata/lines.txt")), "\n")
	for _, line := range lines {
		text := strings.TrimPrefix(strings.TrimPrefix(line, "(local) "), "(remote) ")
		fitting := func(form string) bool { return fits(form, text) }
		if !printed[text] && !slices.ContainsFunc(slices.Collect(maps.Keys(printed)), fitting) {
			t.Errorf("liqoctl does not print %q any more, which scripts know", line)
		}
	}
}

// fits reports whether a form with unknown parts gives a line, and most of the line is in it.
func fits(form, line string) bool {
	fixed := strings.Split(form, unknown)
	if len(fixed) == 1 || 2*len(form) < len(line) || !strings.HasPrefix(line, fixed[0]) {
		return false
	}
	rest := line
	for _, part := range fixed {
		_, after, found := strings.Cut(rest, part)
		if !found {
			return false
		}
		rest = after
	}
	return rest == "" || strings.HasSuffix(form, unknown)
}

// texts returns the contents of files.
func texts(t *testing.T, pattern string, least int) (contents []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join("../..", pattern))
	if err != nil || len(found) < least {
		t.Fatalf("%s: found only %d files: %v", pattern, len(found), err)
	}
	for _, file := range found {
		contents = append(contents, readRoot(t, strings.TrimPrefix(filepath.ToSlash(file), "../../")))
	}
	return contents
}
