// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// metricName matches the names of metrics that we write. Those of libraries are theirs.
var metricName = regexp.MustCompile(`^((liqo|container|node|kubelet|kubernetes)_[a-z_]+|scrape_error)$`)

// rooms are the folders with the source of the product.
var rooms = []string{"api", "identity", "internal", "network", "offloading", "peering", "reflection", "storage"}

// eachFile parses the product's files, in the order of their paths.
func eachFile(visit func(file string, tree *ast.File)) error {
	for _, room := range rooms {
		err := filepath.WalkDir(room, func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			mode := parser.ParseComments | parser.SkipObjectResolution
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, mode)
			if err == nil {
				visit(filepath.ToSlash(file), tree)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// literal returns the value of a string expression, concatenations included, or "" if e is no string constant.
func literal(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		value, _ := strconv.Unquote(e.Value) // numbers are no texts
		return value
	case *ast.BinaryExpr:
		return literal(e.X) + literal(e.Y)
	}
	return ""
}

// metrics writes a row for each metric: the text after its name is its help, or its type if that is one.
func metrics(t *text) error {
	t.printf("Metrics of gateways, the fabric and virtual kubelets; [install.md](../install.md) says how to have\n" +
		"them served. The controller has those of\n" +
		"[controller-runtime](https://book.kubebuilder.io/reference/metrics-reference).\n")
	t.header("metric", "type", "meaning", "declared in")
	rows := map[string][]string{}
	err := eachFile(func(file string, tree *ast.File) {
		ast.Inspect(tree, func(n ast.Node) bool {
			var texts []string
			switch n := n.(type) {
			case *ast.CallExpr:
				for _, argument := range n.Args {
					texts = append(texts, literal(argument))
				}
				if name, ok := n.Fun.(*ast.Ident); ok {
					texts = append(texts, name.Name)
				}
			case *ast.CompositeLit:
				for _, element := range n.Elts {
					if pair, ok := element.(*ast.KeyValueExpr); ok {
						texts = append(texts, literal(pair.Value))
					}
				}
			}
			if i := slices.IndexFunc(texts, metricName.MatchString); i >= 0 {
				addMetric(rows, texts[i], texts[i+1:], file)
			}
			return true
		})
	})
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		t.row(rows[name]...)
	}
	return err
}

func addMetric(rows map[string][]string, name string, texts []string, file string) {
	kind, help := "", ""
	for _, text := range texts {
		if slices.Contains([]string{"counter", "gauge", "histogram"}, text) {
			kind = text
		} else if strings.Contains(text, " ") {
			help = text
		}
	}
	if help != "" {
		rows[name] = []string{code(name), cmp.Or(kind, "histogram"), help, code(file)}
	}
}
