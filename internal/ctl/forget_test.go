// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestGoneIsForgotten: nothing is kept of an object that went with its root, or memory would grow
// with every pod there ever was. One that changes is remembered.
func TestGoneIsForgotten(t *testing.T) {
	t.Parallel()
	var forgotten []string
	h := forgetting{
		handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(obj)}}
		}),
		func(obj client.Object) { forgotten = append(forgotten, obj.GetName()) },
	}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	pod := func(name string) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	h.Create(t.Context(), event.CreateEvent{Object: pod("made")}, q)
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: pod("changed"), ObjectNew: pod("changed")}, q)
	h.Delete(t.Context(), event.DeleteEvent{Object: pod("gone")}, q)
	if len(forgotten) != 1 || forgotten[0] != "gone" {
		t.Errorf("forgotten are %q", forgotten)
	}
	if q.Len() != 3 {
		t.Errorf("%d roots are looked at, not 3", q.Len())
	}
}
