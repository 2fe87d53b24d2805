// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestWaitsEndWithSuccess: an object waits from its first event until work on it succeeds, also
// while it is retried, and events that come later do not shorten the wait.
func TestWaitsEndWithSuccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q, key := newQueue(), types.NamespacedName{Namespace: "shop", Name: "web"}
		defer q.ShutDown()
		now := time.Now()
		oldest := func(want time.Duration) {
			t.Helper()
			if got := q.oldest(now); got != want {
				t.Errorf("the oldest waits for %s, want %s", got, want)
			}
		}
		oldest(0)
		q.wait(key, reason{since: now.Add(-time.Minute)})
		q.Add(key)
		oldest(time.Minute)
		why := q.begin(key)
		oldest(0)
		q.Add(key)
		q.wait(key, why) // work failed
		oldest(time.Minute)
		q.begin(key)
		oldest(0)
		if since := q.begin(key).since; !since.Equal(now) {
			t.Errorf("a delayed key waits since %s, want %s", since, now)
		}
	})
}

// TestNewsFromThePeerTakesTurns: objects with news from the peer are reconciled in turn with the others of
// their namespace, also if they waited before, and until work on them is done.
func TestNewsFromThePeerTakesTurns(t *testing.T) {
	t.Parallel()
	q := newQueue()
	defer q.ShutDown()
	key := func(namespace, name string) types.NamespacedName {
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	next := func(want types.NamespacedName) reason {
		t.Helper()
		if q.Len() == 0 {
			t.Fatalf("no key waits, want %s", want)
		}
		got, _ := q.Get()
		if got != want {
			t.Errorf("%s is next, want %s", got, want)
		}
		q.Done(got)
		return q.begin(got)
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		q.Add(key("shop", name))
	}
	q.Add(key("bank", "a"))
	q.report(key("shop", "d"))
	next(key("shop", "a"))
	next(key("bank", "a"))
	why := next(key("shop", "d"))
	q.wait(key("shop", "d"), why) // work is not done
	q.Add(key("shop", "d"))
	next(key("shop", "b"))
	next(key("shop", "d"))
	q.Add(key("shop", "d"))
	next(key("shop", "c"))
	next(key("shop", "e"))
	next(key("shop", "d"))
	if n := q.Len(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}
