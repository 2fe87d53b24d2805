// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package law

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// Limits of the product's code.
const (
	maxFunctionLines = 60
	maxFileLines     = 500
	maxColumns       = 120 // a tab counts four
	maxComplexity    = 20  // branches and logical operators of a function, plus one
)

var (
	// riddles are the beginnings of comments that do not say what the subject does or holds.
	riddles = regexp.MustCompile(`^(\w+) (is what|are what|tells? which)\b`)
	// dialect are words of which docs/glossary.md says what is written instead.
	dialect = regexp.MustCompile(`(?i)\b(anew|next door|whoever|astray|at home)\b`)
)

// TestLimits measures functions, files, lines and comments of the product.
func TestLimits(t *testing.T) {
	for _, s := range sources(t) {
		for _, f := range append(s.measure(), s.comments()...) {
			t.Errorf("%s:%d: %s", s.path, f.line, f.text)
		}
	}
}

// finding is a place that exceeds a limit.
type finding struct {
	line int
	text string
}

// measure finds what is too long or too complex.
func (s *source) measure() (found []finding) {
	lines := strings.Split(s.text, "\n")
	if n := len(lines) - 1; n > maxFileLines {
		found = append(found, finding{1, fmt.Sprintf("%d lines, of %d at most", n, maxFileLines)})
	}
	for i, line := range lines {
		n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
		if n > maxColumns && !strings.Contains(line, "// +kubebuilder:") { // a marker cannot be broken
			found = append(found, finding{i + 1, fmt.Sprintf("%d columns, of %d at most", n, maxColumns)})
		}
	}
	for _, d := range s.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		first := files.Position(f.Pos()).Line
		if n := files.Position(f.End()).Line - first + 1; n > maxFunctionLines {
			found = append(found, finding{first,
				fmt.Sprintf("%s has %d lines, of %d at most", f.Name.Name, n, maxFunctionLines)})
		}
		if n := complexity(f); n > maxComplexity {
			found = append(found, finding{first,
				fmt.Sprintf("%s has a cyclomatic complexity of %d, of %d at most", f.Name.Name, n, maxComplexity)})
		}
	}
	return found
}

func complexity(f *ast.FuncDecl) int {
	n := 1
	ast.Inspect(f, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt, *ast.CommClause:
			n++
		case *ast.CaseClause:
			if node.List != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}

// comments finds exported names without a comment, and comments that a stranger does not understand.
func (s *source) comments() (found []finding) {
	lacks := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		if name.IsExported() && cmp.Or(docs...) == nil {
			found = append(found, finding{files.Position(name.Pos()).Line,
				name.Name + " is exported and has no comment"})
		}
	}
	for _, d := range s.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				lacks(d.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					lacks(spec.Name, spec.Doc, spec.Comment, d.Doc)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						lacks(name, spec.Doc, spec.Comment, d.Doc)
					}
				}
			}
		}
	}
	for _, group := range s.Comments {
		for i, c := range group.List {
			line := files.Position(c.Pos()).Line
			text := strings.TrimSpace(strings.TrimPrefix(c.Text, "//"))
			if m := riddles.FindString(text); i == 0 && m != "" {
				found = append(found, finding{line,
					fmt.Sprintf("a comment begins with %q; say what it does or holds", m)})
			}
			if word := dialect.FindString(text); word != "" {
				found = append(found, finding{line,
					fmt.Sprintf("a comment says %q; docs/glossary.md has the word for it", word)})
			}
		}
	}
	return found
}
