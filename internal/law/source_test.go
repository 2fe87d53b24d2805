// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package law

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// source is a Go file of the product.
type source struct {
	*ast.File
	// path and dir are relative to the repository's root.
	path, dir string
	text      string
	// imports holds the directories of our packages by the names the file has for them.
	imports map[string]string
}

var (
	files = token.NewFileSet()
	// product parses the product's files once. Tests, test support and generated files are left out.
	product = sync.OnceValues(func() (sources []*source, err error) {
		err = filepath.WalkDir("../..", func(file string, entry fs.DirEntry, err error) error {
			name := strings.TrimPrefix(filepath.ToSlash(file), "../../")
			hidden := strings.HasPrefix(name, ".") && name != "../.." || entry.Name() == "testdata"
			switch {
			case err != nil:
				return err
			case entry.IsDir() && (hidden || slices.Contains(support, name)):
				return filepath.SkipDir
			case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") ||
				strings.HasPrefix(entry.Name(), "zz_generated"):
				return nil
			}
			s, err := parse(name)
			sources = append(sources, s)
			return err
		})
		return sources, err
	})
	support = []string{"bin", "docs", "testbed", "internal/apitest", "internal/patience", "internal/seed", "internal/space", "internal/story"}
)

func parse(name string) (*source, error) {
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		return nil, err
	}
	return parseText(name, string(text))
}

func parseText(name, text string) (*source, error) {
	file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := &source{File: file, path: name, dir: path.Dir(name), text: text, imports: map[string]string{}}
	for _, i := range file.Imports {
		imported, _ := strconv.Unquote(i.Path.Value)
		dir, ours := strings.CutPrefix(imported, module)
		if !ours {
			continue
		}
		alias := path.Base(dir)
		if i.Name != nil {
			alias = i.Name.Name
		}
		s.imports[alias] = dir
	}
	return s, nil
}

func sources(t *testing.T) []*source {
	t.Helper()
	all, err := product()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 200 {
		t.Fatalf("found only %d files", len(all))
	}
	return all
}
