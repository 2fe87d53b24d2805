// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package law

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	used   = regexp.MustCompile(`\buses:\s*(.*)`)
	pinned = regexp.MustCompile(`^[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
)

// TestActionsByDigest: workflows name actions by the digest of a commit, because tags can move, and say its version.
func TestActionsByDigest(t *testing.T) {
	found, err := filepath.Glob("../../.github/workflows/*.y*ml")
	if err != nil || len(found) == 0 {
		t.Fatalf("workflows: %v, %v", found, err)
	}
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, action := range used.FindAllStringSubmatch(string(text), -1) {
			if !pinned.MatchString(strings.TrimSpace(action[1])) {
				t.Errorf("%s uses %s; write owner/name@<40 digits of the commit> # v1.2.3", file, action[1])
			}
		}
	}
}
