// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package law

import (
	"go/ast"
	"go/parser"
	"go/token"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	codeSpan = regexp.MustCompile("`[^`\n]+`")
	// codeReference is how pages name code: `dir/file.go`, or `dir/file.go: Name, Name` with names the file declares.
	codeReference = regexp.MustCompile("^`([^` :]+\\.(?:go|sh|yaml|json|dot|md))(?:: ([^`]+))?`$")
	dotLabel      = regexp.MustCompile(`label="([^"]*)"`)
	svgText       = regexp.MustCompile(`<text[^>]*>([^<]*)</text>`)
)

// TestPagesNameCodeThatExists checks each file, and each name in it, that the pages for newcomers refer to.
func TestPagesNameCodeThatExists(t *testing.T) {
	least := map[string]int{"docs/architecture.md": 50, "docs/glossary.md": 4, "CONTRIBUTING.md": 20}
	for page, least := range least {
		references := 0
		for _, span := range codeSpan.FindAllString(readRoot(t, page), -1) {
			found := codeReference.FindStringSubmatch(span)
			if found == nil {
				if strings.Contains(span, ".go") {
					t.Errorf("%s: %s is not written as `dir/file.go: Name, Name`", page, span)
				}
				continue
			}
			references++
			checkReference(t, page, found[1], found[2])
		}
		if references < least {
			t.Errorf("%s refers to code %d times, and had at least %d references", page, references, least)
		}
	}
}

// checkReference fails if a file does not exist or does not declare the names. Files other than Go contain them.
func checkReference(t *testing.T, page, file, names string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join("../..", file)); err != nil {
		t.Errorf("%s: %s does not exist", page, file)
		return
	}
	if names == "" {
		return
	}
	has := func(name string) bool { return strings.Contains(readRoot(t, file), name) }
	if strings.HasSuffix(file, ".go") {
		declared := declaredIn(t, file)
		has = func(name string) bool { return slices.Contains(declared, name) }
	}
	for _, name := range strings.Split(names, ", ") {
		if !has(name) {
			t.Errorf("%s: %s has no %s", page, file, name)
		}
	}
}

// declaredIn returns the names of functions, methods, types, constants and variables of a file.
func declaredIn(t *testing.T, file string) (names []string) {
	t.Helper()
	source, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", file), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range source.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names = append(names, d.Name.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						names = append(names, name.Name)
					}
				}
			}
		}
	}
	return names
}

// TestArchitectureIsDrawn checks that the picture shows every line of every label of its source: 'make picture' draws it.
func TestArchitectureIsDrawn(t *testing.T) {
	shown := map[string]bool{}
	for _, text := range svgText.FindAllStringSubmatch(readRoot(t, "docs/architecture.svg"), -1) {
		shown[html.UnescapeString(text[1])] = true
	}
	labels := dotLabel.FindAllStringSubmatch(readRoot(t, "docs/architecture.dot"), -1)
	if len(labels) < 10 {
		t.Fatalf("found only %d labels", len(labels))
	}
	for _, label := range labels {
		for _, line := range strings.Split(label[1], `\n`) {
			if line != "" && !shown[line] {
				t.Errorf("docs/architecture.svg does not show %q; run 'make picture'", line)
			}
		}
	}
}

// readRoot reads a file by its path in the repository.
func readRoot(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
