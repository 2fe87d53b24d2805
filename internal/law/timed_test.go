// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package law

import (
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// timedExceptions are functions of tests that compare elapsed time outside TestTimed…, with the reason.
var timedExceptions = map[string]string{
	"cmd/liqo-control: TestManyProviders":               "a ratio that only -soak compares",
	"cmd/liqo-control: settled":                         "waits for a while without a change, with no bound",
	"internal/remote: TestAttackEndlessObjects":         "gives up after it",
	"internal/remote: TestBrokenWatchIsResumed":         "waits for a while without a change, with no bound",
	"internal/remote: wait":                             "gives up after it",
	"network/gateway: TestAClientCutFromItsAPIServer":   "waits until a lease is over, with no bound",
	"network/gateway: TestConnectionComesBack":          "holds for a while: a slow machine looks less often",
	"network/gateway: TestFaultsAreNamed":               "waits for a while without a change, with no bound",
	"offloading: goesBack":                              "a lower bound: slowness cannot break it",
	"peering: TestForeignClusterSumsUp":                 "events per elapsed time: slowness allows more",
	"reflection/replication: TestAttackStatusFillsEtcd": "writes per elapsed time: slowness allows more",
	"reflection: TestAttackRefusalsFillEtcd":            "a lower bound: slowness cannot break it",
	"reflection: TestNewsWait":                          "a lower bound: slowness cannot break it",
	"reflection: aLoudProviderIsHeardALittleAtATime":    "events per elapsed time: slowness allows more",
	"testbed/e2e: eventually":                           "gives up after it",
	"testbed/e2e: killUp":                               "gives up after it",
}

// elapsed matches the calls that return elapsed time, or compare the present with another time.
var elapsed = regexp.MustCompile(`^(time\.(Since|Until)|\w*\.?Sub|Now\.(Before|After))$`)

// TestOnlyTimedTestsCompareTimes: a test is slow on a slow machine, and must not fail for that. A
// function compares times if an operand of <, <=, > or >= has elapsed time in it, also by way of a
// variable or of another function's result. Tests that reach such a function are named TestTimed…,
// which run alone. Pure packages get their times as input, and synctest has its own clock.
func TestOnlyTimedTestsCompareTimes(t *testing.T) {
	refuse(t, (*packageTimes).comparing, timedExceptions,
		"compares elapsed time in %s: count events, use synctest, or name the test TestTimed…")
}

// refuse fails for functions that do something and that tests which do not run alone reach, unless they are exceptions.
// It fails for exceptions that do not do it, too.
func refuse(t *testing.T, doing func(*packageTimes) map[string]bool, exceptions map[string]string, message string) {
	t.Helper()
	found := map[string]string{}
	for dir, sources := range testSources(t) {
		if pure(dir) {
			continue
		}
		p := newPackageTimes(sources)
		for name := range doing(p) {
			for test := range p.bodies {
				if untimed.MatchString(test) && p.reaches(test, name, map[string]bool{}) {
					found[dir+": "+name] = test
				}
			}
		}
	}
	for _, where := range slices.Sorted(maps.Keys(found)) {
		if exceptions[where] == "" {
			t.Errorf("%s "+message, where, found[where])
		}
	}
	for where := range exceptions {
		if found[where] == "" {
			t.Errorf("%s is an exception for nothing", where)
		}
	}
}

// untimed matches names of tests that do not run alone.
var untimed = regexp.MustCompile(`^(Fuzz|Test([^T]|T[^i]|Ti[^m]|Tim[^e]|Time[^d]))`)

// packageTimes holds the top-level declarations of a package's tests by their names. Methods of one
// name count as one.
type packageTimes struct {
	bodies    map[string][]ast.Node
	sources   map[string]bool       // functions that return elapsed time
	constants map[string][]ast.Expr // also those of functions
}

func newPackageTimes(files []*source) *packageTimes {
	p := &packageTimes{bodies: map[string][]ast.Node{}, sources: map[string]bool{}, constants: map[string][]ast.Expr{}}
	for _, file := range files {
		ast.Inspect(file.File, func(n ast.Node) bool {
			if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
				for _, spec := range d.Specs {
					v := spec.(*ast.ValueSpec)
					for i, value := range v.Values {
						p.constants[v.Names[i].Name] = append(p.constants[v.Names[i].Name], value)
					}
				}
			}
			return true
		})
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				p.bodies[d.Name.Name] = append(p.bodies[d.Name.Name], d)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok {
						for _, name := range v.Names {
							p.bodies[name.Name] = append(p.bodies[name.Name], v)
						}
					}
				}
			}
		}
	}
	for before := -1; before < len(p.sources); {
		before = len(p.sources)
		p.each(func(name string, n ast.Node, elapsed func(ast.Node) bool) {
			if r, ok := n.(*ast.ReturnStmt); ok && elapsed(r) {
				p.sources[name] = true
			}
		})
	}
	return p
}

// comparing returns the names of functions that compare elapsed time.
func (p *packageTimes) comparing() map[string]bool {
	found := map[string]bool{}
	p.each(func(name string, n ast.Node, elapsed func(ast.Node) bool) {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			ordered := slices.Contains([]token.Token{token.LSS, token.LEQ, token.GTR, token.GEQ}, n.Op)
			found[name] = found[name] || ordered && elapsed(n)
		case *ast.CallExpr:
			found[name] = found[name] || strings.HasPrefix(called(n), "Now.") && elapsed(n)
		}
	})
	maps.DeleteFunc(found, func(_ string, yes bool) bool { return !yes })
	return found
}

// each visits the nodes of all functions without a bubble of synctest. Its last argument reports
// whether a node has elapsed time in it.
func (p *packageTimes) each(visit func(name string, n ast.Node, elapsed func(ast.Node) bool)) {
	for name, bodies := range p.bodies {
		for _, body := range bodies {
			if uses(body, "synctest") {
				continue
			}
			variables := map[string]bool{}
			holds := func(n ast.Node) bool { return p.holds(n, variables) }
			ast.Inspect(body, func(n ast.Node) bool {
				if a, ok := n.(*ast.AssignStmt); ok && slices.ContainsFunc(a.Rhs, func(e ast.Expr) bool { return holds(e) }) {
					for i, left := range a.Lhs {
						if v, ok := left.(*ast.Ident); ok && (len(a.Lhs) != len(a.Rhs) || holds(a.Rhs[i])) {
							variables[v.Name] = true
						}
					}
				}
				if n != nil {
					visit(name, n, holds)
				}
				return true
			})
		}
	}
}

// holds reports whether a node calls what returns elapsed time, or uses a variable with such a result.
func (p *packageTimes) holds(n ast.Node, variables map[string]bool) (yes bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.Ident:
			yes = yes || variables[n.Name]
		case *ast.CallExpr:
			name := called(n)
			yes = yes || elapsed.MatchString(name) || p.sources[name[strings.LastIndex(name, ".")+1:]]
		}
		return !yes
	})
	return yes
}

// called returns the last two words of what a call calls, such as "time.Since" or "Now.Before".
func called(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		switch x := f.X.(type) {
		case *ast.Ident:
			return x.Name + "." + f.Sel.Name
		case *ast.CallExpr:
			name := called(x)
			return name[strings.LastIndex(name, ".")+1:] + "." + f.Sel.Name
		}
		return f.Sel.Name
	}
	return ""
}

// reaches reports whether a declaration names another, itself or through others.
func (p *packageTimes) reaches(from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	seen[from] = true
	for _, body := range p.bodies[from] {
		for name := range p.bodies {
			if !seen[name] && uses(body, name) && p.reaches(name, to, seen) {
				return true
			}
		}
	}
	return false
}

// uses reports whether a node mentions a name.
func uses(n ast.Node, name string) (yes bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			yes = yes || id.Name == name
		}
		return !yes
	})
	return yes
}

// testFiles parses all files of tests once, by their directories.
var testFiles = sync.OnceValues(func() (map[string][]*source, error) {
	found := map[string][]*source{}
	err := filepath.WalkDir("../..", func(file string, entry fs.DirEntry, err error) error {
		name := strings.TrimPrefix(filepath.ToSlash(file), "../../")
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (strings.HasPrefix(name, ".") && name != "../.." || name == "bin" || entry.Name() == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		s, err := parse(name)
		if err == nil {
			found[s.dir] = append(found[s.dir], s)
		}
		return err
	})
	return found, err
})

func testSources(t *testing.T) map[string][]*source {
	t.Helper()
	all, err := testFiles()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 30 {
		t.Fatalf("found tests of %d packages only", len(all))
	}
	return all
}
