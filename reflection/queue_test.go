// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestWaitsEndWithSuccess: an object waits from its first event until work on it succeeds, also
// while it is retried, and events that come later do not shorten the wait.
func TestWaitsEndWithSuccess(t *testing.T) {
	t.Parallel()
	q, key := newQueue(), types.NamespacedName{Namespace: "shop", Name: "web"}
	defer q.ShutDown()
	now := time.Now()
	oldest := func(want time.Duration) {
		t.Helper()
		if got := q.oldest(now).Round(time.Second); got != want {
			t.Errorf("the oldest waits for %s, want %s", got, want)
		}
	}
	oldest(0)
	q.wait(key, now.Add(-time.Minute))
	q.Add(key)
	oldest(time.Minute)
	since := q.begin(key)
	oldest(0)
	q.Add(key)
	q.wait(key, since) // work failed
	oldest(time.Minute)
	q.begin(key)
	oldest(0)
	if late := now.Sub(q.begin(key)).Abs(); late > time.Second {
		t.Errorf("a delayed key waits since %s before it is due", late)
	}
}
