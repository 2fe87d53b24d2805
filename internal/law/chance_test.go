// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package law

import (
	"fmt"
	"go/ast"
	"go/types"
	"strings"
	"testing"
)

// TestSamplesHaveASeed: random samples of tests take their seed from internal/seed. So another tree draws others, and a
// failing run can be repeated.
func TestSamplesHaveASeed(t *testing.T) {
	for _, files := range testSources(t) {
		for _, s := range files {
			for _, what := range s.unseeded() {
				t.Errorf("%s has %s: take the seed from internal/seed", s.path, what)
			}
		}
	}
}

// TestUnseeded: what is refused, and what is not.
func TestUnseeded(t *testing.T) {
	const head = "package x\nimport (\n\"math/rand/v2\"\n\"github.com/liqo-go/liqo/internal/seed\"\n)\n"
	for text, refused := range map[string]bool{
		head + "var r = rand.New(rand.NewPCG(seed.Of(t), 0))":                               false,
		head + "func f(from uint64) { for i := range 9 { rand.NewPCG(from, uint64(i)) } }":  false,
		head + "var r = rand.New(rand.NewPCG(1, 2))":                                        true,
		head + "func f() { for seed := range uint64(9) { rand.NewPCG(seed, 0) } }":          true,
		head + "func f() { for i := 0; i < 9; i++ { rand.NewPCG(uint64(i), 0) } }":          true,
		head + "var r = rand.NewChaCha8([32]byte{1})":                                       true,
		head + "var r = rand.NewPCG(uint64(time.Now().UnixNano()), 0)":                      true,
		head + "var n = rand.IntN(2)":                                                       true,
		"package x\nimport r \"math/rand/v2\"\nvar n = r.IntN(2)":                           true,
		"package x\nimport \"math/rand/v2\"\nfunc f(from uint64) { rand.NewPCG(from, 0) }":  true,
		"package x\nimport \"math/rand\"\nvar n = rand.New(rand.NewSource(1))":              true,
		"package x\nimport \"testing/quick\"\nvar e = quick.Check(f, nil)":                  true,
		"package x\nimport \"testing/quick\"\nvar e = quick.Check(f, seed.Quick(t))":        false,
		"package x\nimport \"crypto/rand\"\nvar n = rand.Text()":                            false,
		"package x\nimport \"math/rand/v2\"\nfunc f(r *rand.Rand) int { return r.IntN(2) }": false,
	} {
		s, err := parseText("x_test.go", text)
		if err != nil {
			t.Fatal(err)
		}
		if found := s.unseeded(); (len(found) > 0) != refused {
			t.Errorf("refused for %q:\n%s", found, text)
		}
	}
}

// unseeded returns what a test draws or seeds without internal/seed.
func (s *source) unseeded() (found []string) {
	alias := ""
	for _, i := range s.Imports {
		switch path := i.Path.Value; {
		case path == `"math/rand"`:
			found = append(found, "math/rand, not math/rand/v2")
		case path == `"math/rand/v2"` && i.Name != nil:
			alias = i.Name.Name
		case path == `"math/rand/v2"`:
			alias = "rand"
		}
	}
	counters := map[string]bool{}
	count := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok {
			counters[id.Name] = true
		}
	}
	ast.Inspect(s.File, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.RangeStmt:
			count(n.Key)
		case *ast.ForStmt:
			if a, ok := n.Init.(*ast.AssignStmt); ok {
				count(a.Lhs[0])
			}
		case *ast.CallExpr:
			from, name, _ := strings.Cut(called(n), ".")
			if from == "quick" && len(n.Args) > 0 && types.ExprString(n.Args[len(n.Args)-1]) == "nil" {
				found = append(found, "quick."+name+" with a seed of its own")
			}
			seeds := name == "NewPCG" || name == "NewChaCha8"
			if from != alias || alias == "" || name == "New" || name == "NewZipf" ||
				seeds && s.imports["seed"] == "internal/seed" && varies(n.Args[0], counters) {
				return true
			}
			found = append(found, fmt.Sprintf("%s.%s of its own", from, name))
		}
		return true
	})
	return found
}

// varies reports whether an expression uses a name that is no counter of a loop, and not the clock.
func varies(e ast.Expr, counters map[string]bool) (yes bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			yes = yes || !counters[id.Name] && types.Universe.Lookup(id.Name) == nil
		}
		return true
	})
	return yes && !uses(e, "time")
}
