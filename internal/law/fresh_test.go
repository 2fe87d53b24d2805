// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package law

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFresh tries deploy/fresh.sh, with which 'make check' finds stale files, in a folder without git. The generator
// copies api/types to docs.
func TestFresh(t *testing.T) {
	script, err := filepath.Abs("../../deploy/fresh.sh")
	if err != nil {
		t.Fatal(err)
	}
	const generator = "rm -f docs/*.md && cp api/types docs/types.md"
	for name, c := range map[string]struct{ edit, stale string }{
		"untouched":                    {"true", ""},
		"edited, generated again":      {"echo more >> api/types && " + generator, ""},
		"edited, not generated again":  {"echo more >> api/types", "docs/types.md"},
		"edited where it is generated": {"echo more >> docs/types.md", "docs/types.md"},
		"deleted":                      {"rm docs/types.md", "docs/types.md"},
		"extra":                        {"echo more > docs/extra.md", "docs/extra.md"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			setup := "mkdir api docs && echo type > api/types && " + generator + " && " + c.edit
			run := exec.Command("bash", "-ec", setup+`; exec "$0" "$@"`, script, generator, "api", "docs")
			run.Dir = t.TempDir()
			out, err := run.CombinedOutput()
			if (err != nil) != (c.stale != "") || !strings.Contains(string(out), c.stale) {
				t.Errorf("want %q reported as stale: %v\n%s", c.stale, err, out)
			}
		})
	}
}
