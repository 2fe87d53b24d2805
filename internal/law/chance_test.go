// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package law

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// ofChance matches what draws without a seed that can be given again: functions of math/rand itself, its first
// version, and seeds from the clock.
var ofChance = regexp.MustCompile(`(?m)[^.\w]rand\.(U?[Ii]nt(32|64)?N?|Float(32|64)|N|Perm|Shuffle|NewSource)\(|^\s*"math/rand"$|UnixNano\(\)\)\)`)

// TestSamplesHaveASeed: random samples of tests come from internal/seed, or from a seed that is a constant, so that a
// failing run can be repeated.
func TestSamplesHaveASeed(t *testing.T) {
	out, err := exec.Command("git", "-C", "../..", "ls-files", "-z", "*_test.go").Output()
	if err != nil {
		t.Fatalf("list the test files: %v", err)
	}
	names := strings.Split(strings.Trim(string(out), "\x00"), "\x00")
	if len(names) < 200 {
		t.Fatalf("found only %d test files", len(names))
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if os.IsNotExist(err) {
			continue // deleted and not committed
		}
		if err != nil {
			t.Fatal(err)
		}
		if found := ofChance.Find(text); found != nil && name != "internal/law/chance_test.go" {
			t.Errorf("%s has %s…: take the seed from internal/seed", name, found)
		}
	}
}
