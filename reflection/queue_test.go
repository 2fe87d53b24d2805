// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// The cache is late from the write to its event, in whatever order answer and event come.
func TestLedgerKnowsWhichWritesTheCacheLacks(t *testing.T) {
	t.Parallel()
	s := slot{atRemote, types.NamespacedName{Namespace: "shop", Name: "web"}}
	for _, story := range []struct {
		claim string
		steps func(l *ledger)
		late  bool
	}{
		{"nothing written", func(*ledger) {}, false},
		{"under way", func(l *ledger) { l.begin(s) }, true},
		{"written, no event", func(l *ledger) { l.begin(s); l.done(s, "5", "7") }, true},
		{"an older event", func(l *ledger) { l.begin(s); l.done(s, "5", "7"); l.saw(s, "6") }, true},
		{"its event", func(l *ledger) { l.begin(s); l.done(s, "5", "7"); l.saw(s, "7") }, false},
		{"the event came first", func(l *ledger) { l.begin(s); l.saw(s, "8"); l.done(s, "5", "7") }, false},
		{"nothing changed", func(l *ledger) { l.begin(s); l.done(s, "7", "7") }, false},
		{"the write failed", func(l *ledger) { l.begin(s); l.drop(s) }, false},
		{"deleted, no event", func(l *ledger) { l.begin(s); l.deleted(s, "7"); l.saw(s, "7") }, true},
		{"deleted, its event", func(l *ledger) { l.begin(s); l.deleted(s, "7"); l.saw(s, "9") }, false},
	} {
		var l ledger
		story.steps(&l)
		if l.late(s) != story.late {
			t.Errorf("%s: late is %v", story.claim, !story.late)
		}
	}
}
