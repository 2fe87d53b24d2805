// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// FairQueue returns a work queue that serves the namespaces of its keys in turn, so that a thousand
// keys of one namespace do not delay the only key of another. Its rate limit is limiter; if it has
// a name, it has metrics.
func FairQueue[T comparable](
	name string, limiter workqueue.TypedRateLimiter[T], namespaceOf func(T) string,
) workqueue.TypedRateLimitingInterface[T] {
	fair := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{
		Name: name, Queue: &roundRobin[T]{namespaceOf: namespaceOf, waiting: map[string][]T{}}, Clock: seldom{},
	})
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
	turns       []string // namespaces with waiting keys; the first is served next
	length      int
}

// Touch does nothing: a waiting key keeps its place.
func (r *roundRobin[T]) Touch(T) {}

// Push appends a key to those of its namespace.
func (r *roundRobin[T]) Push(key T) {
	namespace := r.namespaceOf(key)
	if len(r.waiting[namespace]) == 0 {
		r.turns = append(r.turns, namespace)
	}
	r.waiting[namespace] = append(r.waiting[namespace], key)
	r.length++
}

// Len returns the number of keys of all namespaces.
func (r *roundRobin[T]) Len() int { return r.length }

// Pop removes and returns the first key of the namespace that is served next. The queue must not be
// empty.
func (r *roundRobin[T]) Pop() T {
	namespace := r.turns[0]
	r.turns = r.turns[1:]
	keys := r.waiting[namespace]
	r.length--
	if len(keys) == 1 {
		delete(r.waiting, namespace)
		return keys[0]
	}
	r.waiting[namespace] = keys[1:]
	r.turns = append(r.turns, namespace)
	return keys[0]
}
