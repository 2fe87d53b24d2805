// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// ledger knows which of our own writes the caches do not show yet, so that nothing is written
// twice because a cache is late:
//
//	begin ── write ── done ── … ── saw      the key is late from begin to the event of the write
//	begin ── write ── saw ── done           the event may overtake the answer
//	begin ── write fails ── drop            nothing to wait for
//
// The zero value is empty and ready.
type ledger struct {
	mu      sync.Mutex
	entries map[slot]*entry
}

// slot is one object of one cluster.
type slot struct {
	cluster cluster
	key     types.NamespacedName // at home
}

type cluster bool

const (
	atHome   cluster = false
	atRemote cluster = true
)

type entry struct {
	written, seen uint64 // resource versions; 0 = not yet
	since         time.Time
}

// patience is how long a cache may be late; after that what it shows is believed again.
const patience = 10 * time.Second

func (l *ledger) begin(s slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries == nil {
		l.entries = map[slot]*entry{}
	}
	l.entries[s] = &entry{since: time.Now()}
}

func (l *ledger) drop(s slot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, s)
}

// done notes the version a write has produced, and the one it was computed for: if they are the
// same the write changed nothing, and there is no event to wait for.
func (l *ledger) done(s slot, before, after string) {
	if before == after {
		l.drop(s)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[s]; e != nil {
		e.written = number(after)
		l.settle(s, e)
	}
}

// deleted notes that the object was deleted, or began to be, at a version after the given one.
func (l *ledger) deleted(s slot, version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[s]; e != nil {
		e.written = number(version) + 1
		l.settle(s, e)
	}
}

// saw notes the version of an event, deletions included.
func (l *ledger) saw(s slot, version string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[s]; e != nil {
		e.seen = max(e.seen, number(version))
		l.settle(s, e)
	}
}

func (l *ledger) settle(s slot, e *entry) {
	if e.written != 0 && e.seen >= e.written {
		delete(l.entries, s)
	}
}

// late says whether the cache does not show our last write yet.
func (l *ledger) late(s slot) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[s]
	if e == nil {
		return false
	}
	if time.Since(e.since) > patience {
		delete(l.entries, s)
		return false
	}
	return true
}

// number reads a resource version. Since Kubernetes 1.35 they are promised to be numbers that
// grow; one that is none counts as 0, which only means that patience has to end the waiting.
func number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
