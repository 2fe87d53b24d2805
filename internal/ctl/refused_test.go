// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRefused: refused keys are tried in turn, and two more for each that is accepted.
func TestRefused(t *testing.T) {
	t.Parallel()
	var r Refused[string]
	expect := func(what string, got []string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	expect("nothing is refused", r.next(1))
	expect("a key that was not refused is accepted", r.Accepted("a"))
	for _, key := range []string{"a", "b", "a", "c", "d", "e"} {
		r.Add(key)
	}
	expect("one is tried", r.next(1), "a")
	expect("another is tried", r.next(1), "b")
	expect("it is accepted", r.Accepted("b"), "c", "d")
	expect("it is accepted once", r.Accepted("b"))
	expect("one of those is accepted", r.Accepted("d"), "e", "a")
	expect("all that are left are tried once", r.next(9), "c", "e", "a")
	ticks := func(n int) (tried string) {
		for range n {
			tried += fmt.Sprint(len(r.due()))
		}
		return tried
	}
	if got, want := ticks(17), "10100010000100001"; got != want {
		t.Errorf("keys are tried at the ticks %s, want %s", got, want)
	}
	r.Add("f")
	if got, want := ticks(4), "1010"; got != want {
		t.Errorf("once a key is added, keys are tried at the ticks %s, want %s", got, want)
	}
}
