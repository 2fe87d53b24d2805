// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
)

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
