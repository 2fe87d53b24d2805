// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

// FairQueue makes a work queue that serves the namespaces of its keys in turn, so that one with a
// thousand keys does not delay the only one of another. It has no rate limit but that of limiter,
// and under a name its metrics.
func FairQueue[T comparable](name string, limiter workqueue.TypedRateLimiter[T], namespaceOf func(T) string) workqueue.TypedRateLimitingInterface[T] {
	fair := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{
		Name: name, Queue: &roundRobin[T]{namespaceOf: namespaceOf, waiting: map[string][]T{}}, Clock: seldom{},
	})
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[T]{
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Name: name, Queue: fair}),
	})
}

// metricsEvery is between two times that a queue brings its metrics of unfinished work up to date: as
// often as Prometheus asks for them by default, at most. Twice a second, as queues do by themselves, the 40 of an
// idle controller woke its process 80 times a second and were nearly all it did.
const metricsEvery = 15 * time.Second

// seldom is the clock of a work queue, which has one use for a ticker.
type seldom struct{ clock.RealClock }

// NewTicker ticks less often than it is asked to.
func (c seldom) NewTicker(time.Duration) clock.Ticker { return c.RealClock.NewTicker(metricsEvery) }

// roundRobin is the order of a fair queue. The work queue around it removes duplicates and locks.
type roundRobin[T comparable] struct {
	namespaceOf func(T) string
	waiting     map[string][]T
	turns       []string // namespaces with something waiting; the first is served next
	length      int
}

// Touch does nothing: a key that waits keeps its place.
func (r *roundRobin[T]) Touch(T) {}

// Push adds a key behind the others of its namespace.
func (r *roundRobin[T]) Push(key T) {
	namespace := r.namespaceOf(key)
	if len(r.waiting[namespace]) == 0 {
		r.turns = append(r.turns, namespace)
	}
	r.waiting[namespace] = append(r.waiting[namespace], key)
	r.length++
}

// Len is the number of keys of all namespaces.
func (r *roundRobin[T]) Len() int { return r.length }

// Pop takes the first key of the namespace whose turn it is; the queue is not empty.
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
