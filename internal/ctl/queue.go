// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// FairQueue returns a work queue that serves the namespaces of its keys in turn, so that a thousand
// keys of one namespace do not delay the only key of another. A waiting key that is added again moves
// if namespaceOf returns another namespace for it than before. Its rate limit is limiter; if it has a
// name, it has metrics.
func FairQueue[T comparable](
	name string, limiter workqueue.TypedRateLimiter[T], namespaceOf func(T) string,
) workqueue.TypedRateLimitingInterface[T] {
	queue := &roundRobin[T]{namespaceOf: namespaceOf, waiting: map[string][]T{}, in: map[T]string{}}
	fair := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Name: name, Queue: queue, Clock: seldom{}})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[T]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(
			workqueue.TypedDelayingQueueConfig[T]{Name: name, Queue: fair}),
	})
}

// metricsEvery is how often a queue updates its metrics of unfinished work: at most as often as
// Prometheus scrapes them by default. At client-go's interval of half a second, the 40 queues of an
// idle controller woke its process 80 times a second, which was nearly all its work.
const metricsEvery = 15 * time.Second

// seldom is the clock of a work queue, which uses a ticker for these metrics only.
type seldom struct{ clock.RealClock }

// NewTicker ignores the requested interval.
func (c seldom) NewTicker(time.Duration) clock.Ticker { return c.RealClock.NewTicker(metricsEvery) }

// roundRobin orders the keys of a fair queue. The work queue around it removes duplicates and holds
// the lock.
type roundRobin[T comparable] struct {
	namespaceOf func(T) string
	waiting     map[string][]T
	in          map[T]string // the namespace in which each key waits
	turns       []string     // namespaces with waiting keys; the first is served next
}

// Touch is called when a waiting key is added again. The key keeps its place, unless its namespace has
// changed: then it becomes the last of the new one.
func (r *roundRobin[T]) Touch(key T) {
	before := r.in[key]
	if before == r.namespaceOf(key) {
		return
	}
	others := slices.DeleteFunc(r.waiting[before], func(other T) bool { return other == key })
	r.waiting[before] = others
	if len(others) == 0 {
		delete(r.waiting, before)
		r.turns = slices.DeleteFunc(r.turns, func(namespace string) bool { return namespace == before })
	}
	r.Push(key)
}

// Push appends a key to those of its namespace.
func (r *roundRobin[T]) Push(key T) {
	namespace := r.namespaceOf(key)
	if len(r.waiting[namespace]) == 0 {
		r.turns = append(r.turns, namespace)
	}
	r.waiting[namespace] = append(r.waiting[namespace], key)
	r.in[key] = namespace
}

// Len returns the number of keys of all namespaces.
func (r *roundRobin[T]) Len() int { return len(r.in) }

// Pop removes and returns the first key of the namespace that is served next. The queue must not be
// empty.
func (r *roundRobin[T]) Pop() T {
	namespace := r.turns[0]
	r.turns = r.turns[1:]
	keys := r.waiting[namespace]
	delete(r.in, keys[0])
	if len(keys) == 1 {
		delete(r.waiting, namespace)
		return keys[0]
	}
	r.waiting[namespace] = keys[1:]
	r.turns = append(r.turns, namespace)
	return keys[0]
}
