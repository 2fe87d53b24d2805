// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/internal/ledger"
)

// The cache is late from the write to its event, in whatever order answer and event come.
func TestLedgerKnowsWhichWritesTheCacheLacks(t *testing.T) {
	t.Parallel()
	s := types.NamespacedName{Namespace: "shop", Name: "web"}
	type names = ledger.Ledger[types.NamespacedName, string]
	for _, story := range []struct {
		claim string
		steps func(l *names)
		late  bool
	}{
		{"nothing written", func(*names) {}, false},
		{"under way", func(l *names) { l.Begin(s, "v") }, true},
		{"written, no event", func(l *names) { l.Begin(s, "v"); l.Written(s, "5", "7") }, true},
		{"an older event", func(l *names) { l.Begin(s, "v"); l.Written(s, "5", "7"); l.Shown(s, "6") }, true},
		{"its event", func(l *names) { l.Begin(s, "v"); l.Written(s, "5", "7"); l.Shown(s, "7") }, false},
		{"the event came first", func(l *names) { l.Begin(s, "v"); l.Shown(s, "8"); l.Written(s, "5", "7") }, false},
		{"nothing changed", func(l *names) { l.Begin(s, "v"); l.Written(s, "7", "7") }, false},
		{"the write failed", func(l *names) { l.Begin(s, "v"); l.End(s) }, false},
		{"deleted, no event", func(l *names) { l.Begin(s, "v"); l.Deleted(s, "7"); l.Shown(s, "7") }, true},
		{"deleted, its event", func(l *names) { l.Begin(s, "v"); l.Deleted(s, "7"); l.Shown(s, "9") }, false},
	} {
		var l names
		story.steps(&l)
		if value, late := l.Late(s); late != story.late || late != (value == "v") {
			t.Errorf("%s: late is %v with %q", story.claim, late, value)
		}
	}
}

// An entry ends with the patience of its ledger, and not before. Without one it stays.
func TestPatienceEnds(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	l := ledger.Ledger[string, int]{Patience: ledger.Patience, Now: func() time.Time { return now }}
	endless := ledger.Ledger[string, int]{Now: l.Now}
	l.Begin("old", 1)
	endless.Begin("old", 1)
	now = now.Add(ledger.Patience)
	l.Begin("new", 2)
	if _, late := l.Late("old"); !late || l.Expire() != nil {
		t.Error("the entry ended before the patience was over")
	}
	now = now.Add(time.Second)
	if keys := l.Expire(); !slices.Equal(keys, []string{"old"}) {
		t.Errorf("expired are %v", keys)
	}
	if value, late := endless.Late("old"); !late || value != 1 || endless.Expire() != nil {
		t.Error("an entry ended though there is no limit")
	}
	l.Retain(map[string]bool{"other": true})
	if _, late := l.Late("new"); late {
		t.Error("an entry is left that was not to be retained")
	}
}
