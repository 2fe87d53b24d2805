// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podtable reads what is promised of pods next door: rows, each with the test that proves
// it. It writes the table users read; the stories run the tests, on clusters.
package podtable

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Row is a line of docs/pods.md and its test: a file like
//
//	volumes: emptyDir
//	what the table says of it
//	-- manifest.yaml --
//	what is applied at home
//	-- check --
//	commands for bash, beside the functions that the stories give them
type Row struct {
	File, Group, Feature, Behaviour string
	Manifest, Check                 string
}

const applications = "applications"

// groups are the sections of the page, in their order.
func groups() []string {
	return []string{"life", "volumes and environment", "network and probes", "placement", "security", "kubectl", applications}
}

// Application reports whether the row tests an application of several pods instead of a single feature.
func (r Row) Application() bool { return r.Group == applications }

// Namespace is where the row's objects are at home: applications have one of their own.
func (r Row) Namespace() string {
	if r.Application() {
		return r.File
	}
	return "pods"
}

// Strategy is where pods of the row's namespace may run: applications on nodes of both clusters,
// all else next door.
func (r Row) Strategy() string {
	if r.Application() {
		return "LocalAndRemote"
	}
	return "Remote"
}

// Read gives the rows of a folder in the order of the page.
func Read(folder string) ([]Row, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.txtar"))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", folder, err)
	}
	var all []Row
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read a row: %w", err)
		}
		r := parse(strings.TrimSuffix(filepath.Base(file), ".txtar"), string(text))
		if !slices.Contains(groups(), r.Group) || r.Feature == "" || r.Behaviour == "" || r.Manifest == "" || r.Check == "" {
			return nil, fmt.Errorf("row %s: want 'group: feature', the behaviour, manifest.yaml and check; groups are %q", file, groups())
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Row) int {
		return cmp.Or(slices.Index(groups(), a.Group)-slices.Index(groups(), b.Group), strings.Compare(a.File, b.File))
	})
	return all, nil
}

func parse(file, text string) Row {
	r := Row{File: file}
	head, body, _ := strings.Cut(text, "-- manifest.yaml --\n")
	r.Manifest, r.Check, _ = strings.Cut(body, "-- check --\n")
	title, behaviour, _ := strings.Cut(head, "\n")
	r.Group, r.Feature, _ = strings.Cut(title, ": ")
	r.Behaviour = strings.Join(strings.Fields(behaviour), " ")
	return r
}

var since = regexp.MustCompile(`from Kubernetes 1\.(\d+) on`)

// Since returns the first minor version of Kubernetes that the row applies to, as 37 for 1.37; 0 = all versions.
func (r Row) Since() int {
	if m := since.FindStringSubmatch(r.Behaviour); m != nil {
		minor, _ := strconv.Atoi(m[1]) // digits
		return minor
	}
	return 0
}

// Markdown is the table, a section for each group. tests is where the rows are, as the page names it.
func Markdown(rows []Row, tests string) string {
	var b strings.Builder
	group := ""
	for _, r := range rows {
		if r.Group != group {
			group = r.Group
			fmt.Fprintf(&b, "\n## %s%s\n\n| feature | next door |\n|---|---|\n", strings.ToUpper(group[:1]), group[1:])
		}
		fmt.Fprintf(&b, "| [%s](%s/%s.txtar) | %s |\n", r.Feature, tests, r.File, r.Behaviour)
	}
	return b.String()
}
