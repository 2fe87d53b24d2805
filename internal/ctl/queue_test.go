// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A single object of another namespace waits for one object, not for a thousand.
func TestQueueIsFairBetweenNamespaces(t *testing.T) {
	t.Parallel()
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

// Queues of an idle process do not wake it twice a second for their metrics of unfinished work,
// which are brought up to date all the same.
func TestIdleQueuesSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := FairQueue("sleeps", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request](), requestNamespace)
		defer q.ShutDown()
		q.Add(request("busy", "0"))
		key, _ := q.Get()
		defer q.Done(key)
		for _, c := range []struct{ after, want time.Duration }{{metricsEvery - time.Second, 0}, {2 * time.Second, metricsEvery}} {
			time.Sleep(c.after) // of the bubble's clock
			synctest.Wait()
			if got := unfinished(t, "sleeps"); got != c.want {
				t.Errorf("the queue says %v of work are unfinished, want %v", got, c.want)
			}
		}
	})
}

// unfinished returns the metrics of a queue's unfinished work.
func unfinished(t *testing.T, queue string) time.Duration {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if family.GetName() == "workqueue_unfinished_work_seconds" && label.GetName() == "name" && label.GetValue() == queue {
					return time.Duration(m.GetGauge().GetValue() * float64(time.Second))
				}
			}
		}
	}
	t.Fatalf("no metric of queue %s", queue)
	return 0
}
