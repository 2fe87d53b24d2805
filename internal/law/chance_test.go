// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package law

import (
	"regexp"
	"testing"
)

// ofChance matches what draws without a seed that can be given again: functions of math/rand itself, its first
// version, and seeds from the clock.
var ofChance = regexp.MustCompile(`(?m)[^.\w]rand\.(U?[Ii]nt(32|64)?N?|Float(32|64)|N|Perm|Shuffle|NewSource)\(|^\s*"math/rand"$|UnixNano\(\)\)\)`)

// TestSamplesHaveASeed: random samples of tests come from internal/seed, or from a seed that is a constant, so that a
// failing run can be repeated.
func TestSamplesHaveASeed(t *testing.T) {
	for _, files := range testSources(t) {
		for _, s := range files {
			if found := ofChance.FindString(s.text); found != "" && s.path != "internal/law/chance_test.go" {
				t.Errorf("%s has %s…: take the seed from internal/seed", s.path, found)
			}
		}
	}
}
