// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// upgrade is the part that upgrades the clusters of a peering.
	upgrade = "upgrade"
	// whole is the sample that is all stories.
	whole = "1"
)

// result is what the stories of one part printed.
type result struct {
	part, sample   string
	versions       []string // of the clusters rome and milan, as 1.36.3
	passed, failed []string // names of stories; one that failed and then passed alone is in failed
}

var (
	// ended matches how a story ended, which is a test of the second level, and its second run if it failed.
	ended = regexp.MustCompile(`^    --- (PASS|FAIL): (Test\w+/[^/ ]+)(/alone)? \(`)
	// runsOn matches what stories print when their clusters run.
	runsOn = regexp.MustCompile(`^clusters run: rome v(\S+), milan v(\S+)\n`)
)

// read takes what one line says.
func (r *result) read(line string) {
	if m := runsOn.FindStringSubmatch(line); m != nil && r.versions == nil {
		r.versions = m[1:]
	}
	switch m := ended.FindStringSubmatch(line); {
	case m == nil || m[3] != "":
	case m[1] == "PASS":
		r.passed = append(r.passed, m[2])
	default:
		r.failed = append(r.failed, m[2])
	}
}

// row is a line of the table.
func (r *result) row(at time.Time, commit string) string {
	versions := r.versions
	if len(versions) != 2 {
		versions = []string{r.part, r.part}
	}
	if r.part == upgrade {
		for i := range versions {
			versions[i] += " and on"
		}
	}
	stories := "stories"
	if r.sample != whole && r.part != upgrade {
		stories = "stories of a sample"
	}
	outcome := fmt.Sprintf("all %d %s", len(r.passed), stories)
	if len(r.failed) > 0 {
		outcome = fmt.Sprintf("%d of %d %s; not: %s", len(r.passed), len(r.passed)+len(r.failed), stories, strings.Join(r.failed, ", "))
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |", versions[0], versions[1], outcome, at.UTC().Format(time.DateOnly), commit)
}

// The lines around the table.
const tableBegins, tableEnds = "<!-- written by 'make test-versions' -->\n", "<!-- end -->\n"

const tableHead = "| consumer | provider | outcome | when | commit |\n|---|---|---|---|---|\n"

// withRow returns the page with a row in its table, in place of the one with the same versions. Rows are sorted.
func withRow(page, row string) (string, error) {
	before, rest, begins := strings.Cut(page, tableBegins)
	table, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return "", fmt.Errorf("lacks the lines %q and %q around the table", tableBegins, tableEnds)
	}
	versions := func(row string) string { return strings.Join(strings.Split(row, "|")[:3], "|") }
	rows := []string{row}
	for line := range strings.Lines(strings.TrimPrefix(strings.TrimLeft(table, "\n"), tableHead)) {
		if line = strings.TrimSpace(line); line != "" && versions(line) != versions(row) {
			rows = append(rows, line)
		}
	}
	slices.Sort(rows)
	return before + tableBegins + "\n" + tableHead + strings.Join(rows, "\n") + "\n\n" + tableEnds + after, nil
}
