// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/liqo-go/liqo/testbed/podtable"
)

// applicationPatience is how long the check of a real application may take, most of which it waits for failovers.
const applicationPatience = 15 * time.Minute

// TestApplications runs real programs across two clusters, one after another. With -record it writes the table of
// docs/applications.md. The images are those that `make test-applications` builds.
func TestApplications(t *testing.T) {
	tellEach(t, []stage{{peered, unknown, []story{{"applications run across clusters", func(t *testing.T) {
		loadApplications(t)
		realApplications(t)
	}}}}})
}

func loadApplications(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	images, err := filepath.Glob(filepath.Join(cache, "liqo-testbed", "applications", "*", "image.tar"))
	if err != nil || len(images) == 0 {
		t.Fatalf("no images (%v); run 'make test-applications'", err)
	}
	if out, err := testbed("load", images...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// offloadFlags finds in the text of a row how its namespace is offloaded: the page shows what is tested.
var offloadFlags = regexp.MustCompile(`--(namespace-mapping|pod-offloading)-strategy \w+`)

func realApplications(t *testing.T) {
	rows, err := podtable.Read("testdata/applications")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for _, r := range rows {
		done, configured, _ := strings.Cut(r.Behaviour, " Configured: ")
		took := time.Duration(0)
		t.Run(r.File, func(t *testing.T) {
			rome.kubectl(t, "create", "namespace", r.Namespace())
			flags := strings.Fields(strings.Join(offloadFlags.FindAllString(configured, -1), " "))
			rome.must(t, append([]string{"offload", "namespace", r.Namespace()}, flags...)...)
			outcome := try(r, applicationPatience)
			if took = outcome.took; outcome.err != nil {
				t.Errorf("%s: %s", r.Feature, outcome)
				dumpFailed(t)
			}
			rome.kubectl(t, "delete", "namespace", r.Namespace(), patiently)
		})
		fmt.Fprintf(&table, "| [%s](../testbed/stories/testdata/applications/%s.txtar) | %s | %s | %.0f |\n",
			r.Feature, r.File, done, configured, took.Seconds())
	}
	if *record && !t.Failed() {
		recordApplications(t, table.String())
	}
}

func recordApplications(t *testing.T, table string) {
	page := filepath.Join(root, "docs", "applications.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "| application | what was run | what had to be configured | seconds |\n|---|---|---|---|\n", "\n\n"
	head, rest, found := strings.Cut(string(text), begin)
	_, tail, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no table that begins with\n%s", page, begin)
	}
	if err := os.WriteFile(page, []byte(head+begin+table+"\n"+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
