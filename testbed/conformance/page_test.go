// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"
)

// The share counts specs that pass on a real node and ran on the virtual one. A failure needs a reason.
func TestMarkdown(t *testing.T) {
	passed, failed := outcome{"passed", ""}, outcome{"failed", "timed out\nafter a minute"}
	real := map[string]outcome{
		"[sig-node] Pods should run [Conformance]":            passed,
		"[sig-node] Pods should stop [Conformance]":           passed,
		"[sig-node] Pods should wait [Conformance]":           passed,
		"[sig-node] Pods should fly [Conformance]":            failed,
		"[sig-apps] Daemon set [Serial] should [Conformance]": {},
	}
	virtual := map[string]outcome{
		"[sig-node] Pods should run [Conformance]":  passed,
		"[sig-node] Pods should stop [Conformance]": failed,
		"[sig-node] Pods should fly [Conformance]":  failed,
	}
	page, problems := markdown("v1", "", time.Unix(0, 0), virtual, real)
	for _, want := range []string{
		"**Of 2 specs that ran on both and pass on a real node, 1 pass on the virtual one: 50.0 %.**",
		"| Pods should run | passed | passed |  |",
		"| Pods should stop | passed | failed | not explained yet: timed out |",
		"| Pods should wait | passed | not run |  |",
		"| Pods should fly | failed | failed | timed out |",
		"| Daemon set should | left out | left out | runs alone",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("page lacks %q:\n%s", want, page)
		}
	}
	if len(problems) != 2 {
		t.Errorf("problems %q", problems)
	}
}
