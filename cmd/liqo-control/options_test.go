// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPairs: global labels and annotations come as pairs, or as JSON where values have commas.
func TestPairs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		"":                           {},
		"a=1,b=c=d":                  {"a": "1", "b": "c=d"},
		`{"note": "a,b=c", "x": ""}`: {"note": "a,b=c", "x": ""},
	} {
		got, err := pairs("--global-labels", text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, (-want +got):\n%s", text, err, diff)
		}
	}
	for _, text := range []string{"a", "a=1,", `{"a": 1}`} {
		if got, err := pairs("--global-labels", text); err == nil {
			t.Errorf("%s gives %v", text, got)
		}
	}
}
