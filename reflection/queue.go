// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// queue holds the keys (namespace and name at home) of one kind that are to be looked at.
type queue = workqueue.TypedRateLimitingInterface[types.NamespacedName]

// Back-off of a key that fails, doubled each time: the first is short because conflicts are
// settled by the next event; the last bounds how late a freed quota or name is noticed.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Minute
)

// newQueue makes a queue that is fair between namespaces and has no rate limit but back-off.
func newQueue() queue {
	fair := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{Queue: &roundRobin{}})
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry),
		workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{Queue: fair}),
		})
}

// roundRobin serves the namespaces in turn, so that one that makes a thousand objects does not
// delay the only one of another. The work queue around it removes duplicates and locks.
type roundRobin struct {
	waiting map[string][]types.NamespacedName
	turns   []string // namespaces with something waiting; the first is served next
	length  int
}

// Touch does nothing: a key that waits keeps its place.
func (r *roundRobin) Touch(types.NamespacedName) {}

// Push adds a key behind the others of its namespace.
func (r *roundRobin) Push(key types.NamespacedName) {
	if r.waiting == nil {
		r.waiting = map[string][]types.NamespacedName{}
	}
	if len(r.waiting[key.Namespace]) == 0 {
		r.turns = append(r.turns, key.Namespace)
	}
	r.waiting[key.Namespace] = append(r.waiting[key.Namespace], key)
	r.length++
}

// Len is the number of keys of all namespaces.
func (r *roundRobin) Len() int { return r.length }

// Pop takes the first key of the namespace whose turn it is; the queue is not empty.
func (r *roundRobin) Pop() types.NamespacedName {
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
