// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A single object of another namespace waits for one object, not for a thousand.
func TestQueueIsFairBetweenNamespaces(t *testing.T) {
	q := FairQueue("", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request](), requestNamespace)
	for i := range 1000 {
		q.Add(request("busy", fmt.Sprint(i)))
	}
	q.Add(request("quiet", "only"))
	q.Add(request("busy", "0")) // waits already
	var first []string
	for range 4 {
		key, _ := q.Get()
		first = append(first, key.String())
		q.Done(key)
	}
	if diff := cmp.Diff([]string{"busy/0", "quiet/only", "busy/1", "busy/2"}, first); diff != "" {
		t.Error(diff)
	}
	if q.Len() != 997 {
		t.Errorf("%d keys left, want 997", q.Len())
	}
}

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// Queues of an idle process do not wake it for their metrics as often as they ask to.
func TestIdleQueuesSleep(t *testing.T) {
	ticker := seldom{}.NewTicker(time.Millisecond)
	defer ticker.Stop()
	select {
	case <-ticker.C():
		t.Error("a queue is woken after milliseconds")
	case <-time.After(100 * time.Millisecond):
	}
}
