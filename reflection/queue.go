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
	// pending has each key that was added and has not been reconciled without error after that. Keys
	// that are due at a later time only are not among them.
	pending map[types.NamespacedName]reason
}

// reason is why a key is pending.
type reason struct {
	// since is when it was added first.
	since time.Time
	// reported means that there is news from the peer.
	reported bool
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
	q := &queue{pending: map[types.NamespacedName]reason{}}
	q.TypedRateLimitingInterface = ctl.FairQueue("",
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstRetry, lastRetry), q.turn)
	return q
}

// turn names the queue of a key: one of the two of its namespace.
func (q *queue) turn(key types.NamespacedName) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pending[key].reported {
		return key.Namespace + "/reported"
	}
	return key.Namespace
}

// Add enqueues a key, and notes the time.
func (q *queue) Add(key types.NamespacedName) {
	q.wait(key, reason{since: time.Now()})
	q.TypedRateLimitingInterface.Add(key)
}

// report enqueues the key of an object with news from the peer.
func (q *queue) report(key types.NamespacedName) {
	q.wait(key, reason{since: time.Now(), reported: true})
	q.TypedRateLimitingInterface.Add(key)
}

// wait adds a reason to those for which a key is pending. It enqueues nothing.
func (q *queue) wait(key types.NamespacedName, why reason) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if before, ok := q.pending[key]; ok {
		if before.since.Before(why.since) {
			why.since = before.since
		}
		why.reported = why.reported || before.reported
	}
	q.pending[key] = why
}

// begin ends the wait of a key, and returns why it has waited. If the work cannot be done yet, or
// fails, the caller passes the reason to wait.
func (q *queue) begin(key types.NamespacedName) reason {
	q.mu.Lock()
	defer q.mu.Unlock()
	why, ok := q.pending[key]
	if !ok { // a delayed key
		why.since = time.Now()
	}
	delete(q.pending, key)
	return why
}

// waiting returns the keys of a namespace that wait.
func (q *queue) waiting(namespace string) (keys []types.NamespacedName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for key := range q.pending {
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
	for _, why := range q.pending {
		longest = max(longest, now.Sub(why.since))
	}
	return longest
}
