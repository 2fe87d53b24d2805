// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package podtable

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the table of docs/pods.md")

// TestPage compares the table users read with the rows that are tested.
func TestPage(t *testing.T) {
	rows, err := Read("../stories/testdata/pods")
	if err != nil {
		t.Fatal(err)
	}
	const page, begin = "../../docs/pods.md", "<!-- go test ./testbed/podtable -update writes what follows -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, table, found := strings.Cut(string(text), begin)
	if !found {
		t.Fatalf("%s: no line %q", page, begin)
	}
	want := Markdown(rows, "../testbed/stories/testdata/pods")
	if *update {
		if err := os.WriteFile(page, []byte(head+begin+want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != want {
		t.Errorf("%s is not what is tested; run this test with -update", page)
	}
}
