// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// probeInterval is how often one refused object of a kind is tried again. Nothing tells the consumer when a quota has
// room, a policy changes or its tenant is activated.
const probeInterval = 2 * time.Second

// probesPerAccepted is how many refused objects are tried at once when the peer accepts one. With two, any number
// recovers within a few round trips, and a quota with room for one object costs two further refusals.
const probesPerAccepted = 2

// refused holds the keys of one kind whose objects the peer refuses, the one tried longest ago first. The zero value
// is empty.
type refused struct {
	mu       sync.Mutex
	order    list.List
	elements map[types.NamespacedName]*list.Element
}

func (r *refused) add(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.elements == nil {
		r.elements = map[types.NamespacedName]*list.Element{}
	}
	if r.elements[key] == nil {
		r.elements[key] = r.order.PushBack(key)
	}
}

// remove reports whether the key was there.
func (r *refused) remove(key types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.elements[key]
	if ok {
		r.order.Remove(e)
		delete(r.elements, key)
	}
	return ok
}

// next returns up to n keys to try, which stay until they are removed.
func (r *refused) next(n int) []types.NamespacedName {
	r.mu.Lock()
	defer r.mu.Unlock()
	var keys []types.NamespacedName
	for range min(n, r.order.Len()) {
		e := r.order.Front()
		keys = append(keys, e.Value.(types.NamespacedName))
		r.order.MoveToBack(e)
	}
	return keys
}

// probe tries one refused object of each kind every probeInterval, until ctx ends. The back-off of each object goes on
// besides.
func (e *Engine) probe(ctx context.Context) {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for _, w := range e.kinds {
				w.retry(1)
			}
		}
	}
}

// retry queues up to n refused objects.
func (w *worker) retry(n int) {
	for _, key := range w.refused.next(n) {
		w.queue.Add(key)
	}
}

// noteRefusal remembers that the peer refuses the object of a key. When it no longer does, others are tried: the cause
// may be gone for them, too.
func (w *worker) noteRefusal(key types.NamespacedName, err error) {
	switch {
	case refusal(err) != nil:
		w.refused.add(key)
	case (err == nil || errors.Is(err, errNotOurs)) && w.refused.remove(key):
		w.retry(probesPerAccepted)
	}
}
