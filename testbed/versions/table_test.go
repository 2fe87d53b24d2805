// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What two processes print at once becomes a row: a story that failed counts as failed, also if it passed alone, and
// its parts count for nothing.
func TestRow(t *testing.T) {
	r := result{part: "1.36", sample: "0.5"}
	for line := range strings.Lines(`SEED=abc
clusters run: rome v1.36.3, milan v1.36.3
clusters run: rome v1.36.3, milan v1.36.3
--- FAIL: TestConnecting (600.00s)
    tell_test.go:98: install: 12.3s
    --- PASS: TestConnecting/install (12.31s)
    --- FAIL: TestConnecting/pods_behave_as_at_home (300.00s)
        --- FAIL: TestConnecting/pods_behave_as_at_home/resize (3.00s)
        --- PASS: TestConnecting/pods_behave_as_at_home/uid (3.00s)
    --- PASS: TestConnecting/pods_behave_as_at_home/alone (280.00s)
--- PASS: TestPeered (600.00s)
    --- PASS: TestPeered/peer (12.31s)
`) {
		r.read(line)
	}
	want := "| 1.36.3 | 1.36.3 | 2 of 3 stories of a sample; not: TestConnecting/pods_behave_as_at_home | 2026-11-30 | 0123abcd |"
	if diff := cmp.Diff(want, r.row(time.Date(2026, 11, 30, 4, 0, 0, 0, time.UTC), "0123abcd")); diff != "" {
		t.Error(diff)
	}
}

func TestTable(t *testing.T) {
	page := "# Page\n\n" + tableBegins + tableEnds + "\nmore\n"
	for _, row := range []string{
		"| 1.37.2 | 1.37.2 | all 3 stories | 2026-11-29 | 1 |", "| 1.35.4 | 1.37.2 | all 3 stories | 2026-11-29 | 1 |",
		"| 1.37.2 | 1.37.2 | 2 of 3 stories; not: TestPeered/peer | 2026-11-30 | 2 |",
	} {
		var err error
		if page, err = withRow(page, row); err != nil {
			t.Fatal(err)
		}
	}
	want := "# Page\n\n" + tableBegins + "\n" + tableHead +
		"| 1.35.4 | 1.37.2 | all 3 stories | 2026-11-29 | 1 |\n" +
		"| 1.37.2 | 1.37.2 | 2 of 3 stories; not: TestPeered/peer | 2026-11-30 | 2 |\n\n" + tableEnds + "\nmore\n"
	if diff := cmp.Diff(want, page); diff != "" {
		t.Error(diff)
	}
	if _, err := withRow("# Page\n", "| 1 | 2 | 3 |"); err == nil || !strings.Contains(err.Error(), "around the table") {
		t.Errorf("a page without a table: %v", err)
	}
}
