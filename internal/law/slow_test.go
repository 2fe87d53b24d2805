// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package law

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// TestSlowTestsHaveANeighbour: each row of slow.txt names a test and its neighbour in the same package. No attack is left
// to later, not even as the only test of it that is timed. No other package has a test of that name, which the Makefile
// would run or leave out as well.
func TestSlowTestsHaveANeighbour(t *testing.T) {
	packages := map[string][]string{} // by name of test
	for folder, files := range testSources(t) {
		for _, s := range files {
			for _, d := range s.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
					packages[f.Name.Name] = append(packages[f.Name.Name], folder)
				}
			}
		}
	}
	for name, folders := range packages {
		if attack, ok := strings.CutPrefix(name, "TestTimedAttack"); ok && packages["TestAttack"+attack] == nil {
			t.Errorf("%s has %s and no TestAttack%s, which 'make test' would run", folders, name, attack)
		}
	}
	slow := map[string]bool{}
	var rows [][]string
	for line := range strings.Lines(readRoot(t, "internal/law/slow.txt")) {
		if row := strings.Fields(line); row[0] != "#" {
			rows = append(rows, row)
			slow[row[1]] = true
		}
	}
	for _, row := range rows {
		folder, name, neighbour := row[0], row[1], row[2]
		if strings.HasPrefix(name, "TestAttack") || strings.HasPrefix(name, "TestTimed") {
			t.Errorf("%s is an attack or timed", name)
		}
		if got := packages[name]; !slices.Equal(got, []string{folder}) {
			t.Errorf("packages with %s: %q, want only %s", name, got, folder)
		}
		if !slices.Contains(packages[neighbour], folder) || slow[neighbour] {
			t.Errorf("%s of %s has no neighbour %s that 'make test' runs", name, folder, neighbour)
		}
	}
	if len(rows) == 0 {
		t.Error("slow.txt has no rows")
	}
}
