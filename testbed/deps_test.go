// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// The shell's image holds one file: a busybox that needs libraries would not start in it.
func TestTheShellStandsAlone(t *testing.T) {
	for path, want := range map[string]bool{busybox: true, "/bin/ls": false, "/absent": false} {
		if got := standsAlone(path); got != want {
			t.Errorf("%s stands alone: %v, want %v", path, got, want)
		}
	}
}
