// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	linked "container/list"
	"context"
	"sync"
	"time"
)

const (
	// probeInterval is the first time until one refused key is tried again. It doubles with each
	// try, up to maxProbeTicks times that, until a key is added or accepted.
	probeInterval = 2 * time.Second
	maxProbeTicks = 5
	// probesPerAccepted is how many others are tried when a refused one is accepted. With two, any
	// number recovers within a few round trips, and a quota with room for one object costs two
	// further refusals.
	probesPerAccepted = 2
)

// Refused holds keys whose objects an API server refuses, the one tried longest ago first. No event
// tells when a quota has room, a policy changes or a tenant is activated. So one key is tried from
// time to time, and when its object is accepted, others are tried: the cause may be gone for them,
// too. The zero value is empty and ready to use.
type Refused[K comparable] struct {
	mu       sync.Mutex
	order    linked.List
	elements map[K]*linked.Element
	// ticks is how many probeIntervals Probe waits between two tries, and left how many of them are
	// left.
	ticks, left int
}

// Add remembers that the object of a key is refused.
func (r *Refused[K]) Add(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.elements == nil {
		r.elements = map[K]*linked.Element{}
	}
	if r.elements[key] == nil {
		r.elements[key] = r.order.PushBack(key)
		r.ticks, r.left = 1, 1
	}
}

// Accepted forgets a key, and returns others to try if it was refused before.
func (r *Refused[K]) Accepted(key K) []K {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.elements[key]
	if !ok {
		return nil
	}
	r.order.Remove(e)
	delete(r.elements, key)
	r.ticks, r.left = 1, 1
	return r.next(probesPerAccepted)
}

// Probe calls try with one refused key from time to time, until ctx ends.
func (r *Refused[K]) Probe(ctx context.Context, try func(K)) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for _, key := range r.due() {
				try(key)
			}
		}
	}
}

// due returns the key to try when a probeInterval has passed, if any.
func (r *Refused[K]) due() []K {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left--; r.left > 0 {
		return nil
	}
	r.ticks = min(2*r.ticks, maxProbeTicks)
	r.left = r.ticks
	return r.next(1)
}

// next returns up to n keys, which stay until they are accepted. The lock is held.
func (r *Refused[K]) next(n int) []K {
	var keys []K
	for range min(n, r.order.Len()) {
		e := r.order.Front()
		keys = append(keys, e.Value.(K))
		r.order.MoveToBack(e)
	}
	return keys
}
