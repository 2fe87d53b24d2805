// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ledger remembers writes of this process that its caches do not show yet, so that a late
// cache leads neither to a second write nor to a resource that is assigned twice. It does not write
// or read objects itself.
package ledger

import (
	"maps"
	"strconv"
	"sync"
	"time"
)

// Patience is the lifetime of an entry in most ledgers. A cache is never that late, so an older
// entry is a write that failed without a response.
const Patience = 10 * time.Second

// Ledger holds one entry for each key that is being written, with a value of the caller. An entry
// ends when a version that is not older than the written one is shown, when it is withdrawn, or
// when the patience is over:
//
//	Begin ── write ── Written ── … ── Shown   late from Begin to the event of the write
//	Begin ── write ── Shown ── Written        the event may overtake the answer
//	Begin ── write fails ── End               there is no event to wait for
//
// The zero value is empty and ready to use. It is safe for concurrent use.
type Ledger[K comparable, V any] struct {
	// Patience is the lifetime of an entry; 0 = no limit.
	Patience time.Duration
	// Now is the clock; nil = time.Now.
	Now func() time.Time

	mu      sync.Mutex
	entries map[K]*entry[V]
}

type entry[V any] struct {
	value          V
	written, shown uint64 // resource versions; 0 = not yet
	since          time.Time
}

// Begin adds an entry before the write, in place of an earlier one of the key.
func (l *Ledger[K, V]) Begin(key K, value V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries == nil {
		l.entries = map[K]*entry[V]{}
	}
	l.entries[key] = &entry[V]{value: value, since: l.now()}
}

// End removes the entry: nothing was written, or the caller has observed the result.
func (l *Ledger[K, V]) End(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, key)
}

// Written records the version that the write produced, and the one it was computed for. If they are
// equal the write changed nothing, and no event follows.
func (l *Ledger[K, V]) Written(key K, before, after string) {
	if before == after {
		l.End(key)
		return
	}
	l.update(key, func(e *entry[V]) { e.written = number(after) })
}

// Deleted records that the object was deleted, or began to be, at a later version than the given
// one.
func (l *Ledger[K, V]) Deleted(key K, version string) {
	l.update(key, func(e *entry[V]) { e.written = number(version) + 1 })
}

// Shown records the version of an event of the cache. Deletions are events, too.
func (l *Ledger[K, V]) Shown(key K, version string) {
	l.update(key, func(e *entry[V]) { e.shown = max(e.shown, number(version)) })
}

// update changes an entry, and removes it if its write has been shown.
func (l *Ledger[K, V]) update(key K, change func(*entry[V])) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[key]; e != nil {
		if change(e); e.written != 0 && e.shown >= e.written {
			delete(l.entries, key)
		}
	}
}

// Late returns the value of the key's entry, and whether there is one: then the cache may not show
// the write yet.
func (l *Ledger[K, V]) Late(key K) (value V, late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	if e == nil {
		return value, false
	}
	if l.expired(e) {
		delete(l.entries, key)
		return value, false
	}
	return e.value, true
}

// Retain removes the entries of all other keys.
func (l *Ledger[K, V]) Retain(keys map[K]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.entries, func(key K, _ *entry[V]) bool { return !keys[key] })
}

// Expire removes the entries whose Patience has passed, and returns their keys.
func (l *Ledger[K, V]) Expire() (keys []K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.entries, func(key K, e *entry[V]) bool {
		if !l.expired(e) {
			return false
		}
		keys = append(keys, key)
		return true
	})
	return keys
}

func (l *Ledger[K, V]) expired(e *entry[V]) bool {
	return l.Patience > 0 && l.now().Sub(e.since) > l.Patience
}

func (l *Ledger[K, V]) now() time.Time {
	if l.Now == nil {
		return time.Now()
	}
	return l.Now()
}

// number parses a resource version. Since Kubernetes 1.35 versions are numbers that grow. Any other
// version counts as 0, so the entry ends only by its patience.
func number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
