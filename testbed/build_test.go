// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	for _, c := range []struct {
		elapsed   time.Duration
		done, all int
		want      string
	}{
		{30 * time.Second, 0, 2500, "0 of about 2500 packages"},
		{6 * time.Minute, 1300, 2500, "1300 of about 2500 packages, 6 minutes left"},
		{4 * time.Minute, 2400, 2500, "2400 of about 2500 packages, 1 minute left"},
		{5 * time.Minute, 2500, 2500, "2500 packages, linking"},
		{5 * time.Minute, 7, 0, "7 packages, linking"}, // another build filled the cache in between
	} {
		if got := progress(c.elapsed, c.done, c.all); got != c.want {
			t.Errorf("%d of %d after %s: %q, want %q", c.done, c.all, c.elapsed, got, c.want)
		}
	}
}
