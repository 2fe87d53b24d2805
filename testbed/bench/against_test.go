// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestCompared: medians, least and most of both sides stand beside each other; what a round lacks is only named.
func TestCompared(t *testing.T) {
	here := side{name: "this tree", values: map[string][]float64{"idle\tmemory\tMiB": {3, 1, 2}, "idle\tnew\tMiB": {1}}}
	there := side{name: "abc", values: map[string][]float64{"idle\tmemory\tMiB": {4, 4, 5}}}
	var b strings.Builder
	if err := compared(&b, []string{"idle\tmemory\tMiB", "idle\tnew\tMiB"}, 3, here, there); err != nil {
		t.Fatal(err)
	}
	want := `GROUP  FIGURE  UNIT  this tree                abc                 RATIO
idle   memory  MiB   2.00       1.00 to 3.00  4.00  4.00 to 5.00  0.500
idle   new     MiB   1 rounds                 0 rounds
`
	if b.String() != want {
		t.Errorf("got\n%s, want\n%s", b.String(), want)
	}
}
