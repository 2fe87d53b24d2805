// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
)

var (
	// condition matches the names of constants that are conditions, their values or reasons, and comments that say so.
	condition = regexp.MustCompile(`^[rR]eason[A-Z]|Condition|is the condition `)
	// conditionValue matches conditions and reasons as Kubernetes writes them.
	conditionValue = regexp.MustCompile(`^[A-Z][A-Za-z]+$`)
	// verb matches what a format fills in.
	verb = regexp.MustCompile(`%[+#.0-9]*[a-z]`)
)

// conditions writes what verdicts say, by room, and then a table for each file that declares conditions or reasons.
func conditions(t *text) error {
	t.printf("Every object with conditions has the standard ones, `Ready`, `Reconciling` and `Stalled`. Their\n" +
		"messages end with the next step; [troubleshoot.md](../troubleshoot.md) goes on from there.\n\n" +
		"A reason is *waiting* where an event or a time will help, and *blocked* where only a change of input helps.\n")
	values, trees := map[string]string{}, map[string][]*ast.File{}
	err := eachFile(func(file string, tree *ast.File) {
		room, _, _ := strings.Cut(file, "/")
		trees[room] = append(trees[room], tree)
		eachConstant(tree, func(name, value, _ string) { values[name] = value })
	})
	if err != nil {
		return err
	}
	for _, room := range slices.Sorted(maps.Keys(trees)) {
		verdicts(t, room, trees[room], values)
	}
	t.printf("\n## Conditions and reasons by file\n")
	return eachFile(func(file string, tree *ast.File) {
		header := false
		eachConstant(tree, func(name, value, doc string) {
			if !condition.MatchString(name) && !condition.MatchString(doc) || !conditionValue.MatchString(value) {
				return
			}
			if !header {
				t.printf("\n### %s\n", file)
				t.header("condition, reason or value", "meaning")
				header = true
			}
			t.row(code(value), meaning(name, doc))
		})
	})
}

// verdicts writes a row for each reason that a room reports with a message that the source has as a text.
func verdicts(t *text, room string, trees []*ast.File, values map[string]string) {
	rows := map[string][]string{}
	for _, tree := range trees {
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) < 2 {
				return true
			}
			function, _ := call.Fun.(*ast.SelectorExpr)
			if function == nil || function.Sel.Name != "Wait" && function.Sel.Name != "Block" {
				return true
			}
			reason := literal(call.Args[0])
			switch name := call.Args[0].(type) {
			case *ast.Ident:
				reason = values[name.Name]
			case *ast.SelectorExpr:
				reason = values[name.Sel.Name]
			}
			message := verb.ReplaceAllString(literal(call.Args[1]), "…")
			if reason == "" || strings.Trim(message, "…; ") == "" {
				return true
			}
			state := map[string]string{"Wait": "waiting", "Block": "blocked"}[function.Sel.Name]
			rows[reason+message] = []string{code(reason), state, message}
			return true
		})
	}
	if len(rows) == 0 {
		return
	}
	t.printf("\n## Verdicts of %s\n", room)
	t.header("reason", "state", "message")
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		t.row(rows[key]...)
	}
}

// eachConstant visits the constants of a file that are texts. One without a comment has that of its group.
func eachConstant(tree *ast.File, visit func(name, value, doc string)) {
	for _, d := range tree.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, s := range group.Specs {
			spec := s.(*ast.ValueSpec)
			for i, name := range spec.Names {
				if i < len(spec.Values) {
					visit(name.Name, literal(spec.Values[i]), oneLine(cmp.Or(spec.Doc.Text(), group.Doc.Text())))
				}
			}
		}
	}
}

// meaning returns a comment without the name of its subject.
func meaning(name, doc string) string {
	for _, prefix := range []string{name + ": ", name + " is ", name + " "} {
		if rest, ok := strings.CutPrefix(doc, prefix); ok {
			return rest
		}
	}
	return doc
}
