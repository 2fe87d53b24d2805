// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/liqo-go/liqo/internal/ctl"
)

// queue holds the keys (home namespace and name) of one kind that are to be reconciled.
type queue struct {
	workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu sync.Mutex
	// since is when each key was added that has not been reconciled without error after that.
	since map[types.NamespacedName]time.Time
	// reported are the keys of objects with news from the peer after which they were not reconciled.
	reported map[types.NamespacedName]struct{}
}

// firstRetry and lastRetry bound the back-off of a failing key, which doubles. The first is short
// because the next event settles a conflict. Refused objects are also retried in turn: see
// ctl.Refused.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = time.Minute
)

// newQueue returns a queue that is fair between namespaces, and delays only keys that fail. In each
// namespace, objects with news from the peer take turns with the others, so that a pod that runs
// does not wait until hundreds are created.
func newQueue() *queue {
	q := &queue{since: map[types.NamespacedName]time.Time{}, reported: map[types.NamespacedName]struct{}{}}
	q.TypedRateLimitingInterface = ctl.FairQueue("",
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry), q.turn)
	return q
}

// turn names the queue of a key: one of the two of its namespace. A key that waits keeps its place.
func (q *queue) turn(key types.NamespacedName) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.reported[key]; ok {
		return key.Namespace + "/reported"
	}
	return key.Namespace
}

// report enqueues the key of an object with news from the peer.
func (q *queue) report(key types.NamespacedName) {
	q.mu.Lock()
	q.reported[key] = struct{}{}
	q.mu.Unlock()
	q.Add(key)
}

// Add enqueues a key, and notes the time.
func (q *queue) Add(key types.NamespacedName) {
	q.wait(key, time.Now())
	q.TypedRateLimitingInterface.Add(key)
}

// wait notes that a key waits since a time, unless it waits longer.
func (q *queue) wait(key types.NamespacedName, since time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if before, ok := q.since[key]; !ok || since.Before(before) {
		q.since[key] = since
	}
}

// begin ends the wait of a key, and returns since when it has waited. If the work fails, the caller
// passes the time to wait.
func (q *queue) begin(key types.NamespacedName) time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	since, ok := q.since[key]
	if !ok { // a delayed key
		since = time.Now()
	}
	delete(q.since, key)
	delete(q.reported, key)
	return since
}

// waiting returns the keys of a namespace that wait.
func (q *queue) waiting(namespace string) (keys []types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key := range q.since {
		if key.Namespace == namespace {
			keys = append(keys, key)
		}
	}
	return keys
}

// oldest returns how long the key waits that has waited longest; 0 = none waits.
func (q *queue) oldest(now time.Time) (longest time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, since := range q.since {
		longest = max(longest, now.Sub(since))
	}
	return longest
}
