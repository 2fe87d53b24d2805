// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/patience"
)

// TestAttackPodsHoldNamespace: a consumer gives a pod whose process ignores SIGTERM years to end, by its
// terminationGracePeriodSeconds or by the grace period of a deletion, so that its remote namespace is never taken back.
//
// Outcome: five minutes after the deletion of the namespace began its pods are killed, and those that are still there
// a minute later are removed. Pods of other namespaces keep the time they were given.
func TestAttackPodsHoldNamespace(t *testing.T) {
	t.Parallel()
	ctx, years := t.Context(), int64(10*365*24*3600)
	var clock atomic.Int64 // the controller's, Unix time in ns
	clock.Store(time.Now().UnixNano())
	var looks atomic.Int64 // at the namespace, for each of which the clock is read
	now := func() time.Time { looks.Add(1); return time.Unix(0, clock.Load()) }
	mgr, err := manager.New(apitest.Start(t).Config, manager.Options{
		Scheme: scheme.New(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctl.Queues(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := takenBack(now).Register(mgr); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(mgr.GetConfig(), client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(running.Wait)
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ofConsumer := map[string]string{api.AnnotationManagedByNamespaceMap: api.ManagedByNamespaceMap("tenant-turin", "milan")}
	for name, annotations := range map[string]map[string]string{"demo-turin": ofConsumer, "stays-turin": ofConsumer, "own": nil} {
		do(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}))
	}
	pod := func(namespace, name string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{api.LabelManagedBy: api.ManagedByShadowPod}}}
		p.Spec = corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "image"}}}
		return p
	}
	var pods []*corev1.Pod
	for _, namespace := range []string{"demo-turin", "stays-turin", "own"} {
		bySpec, byDeletion, running := pod(namespace, "spec"), pod(namespace, "deletion"), pod(namespace, "running")
		bySpec.Spec.TerminationGracePeriodSeconds = &years
		for _, p := range []*corev1.Pod{bySpec, byDeletion, running} {
			do(c.Create(ctx, p))
			pods = append(pods, p)
		}
		do(c.Delete(ctx, bySpec))
		do(c.Delete(ctx, byDeletion, client.GracePeriodSeconds(years)))
	}
	for _, namespace := range []string{"demo-turin", "own"} {
		do(c.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	}
	began := time.Now()
	until := func(what string, met func() bool) {
		t.Helper()
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience.Limit, true, func(context.Context) (bool, error) { return met(), nil })
		if err != nil {
			t.Fatalf("waited until %s: %v", what, err)
		}
	}
	// at lets the time pass. When the controller looks for the second time, it has done what follows from the first.
	at := func(passed time.Duration, held func(*corev1.Pod) bool) {
		t.Helper()
		clock.Store(began.Add(passed).UnixNano())
		for look := range 2 {
			before := looks.Load()
			for _, namespace := range []string{"own", "stays-turin", "demo-turin"} { // an event for each
				touched := &corev1.Namespace{}
				do(c.Get(ctx, types.NamespacedName{Name: namespace}, touched))
				metav1.SetMetaDataAnnotation(&touched.ObjectMeta, "passed", fmt.Sprint(passed, look))
				do(c.Update(ctx, touched))
			}
			until("the controller looks at the namespace", func() bool { return looks.Load() > before })
		}
		for _, p := range pods {
			is := &corev1.Pod{}
			err := c.Get(ctx, client.ObjectKeyFromObject(p), is)
			do(client.IgnoreNotFound(err))
			grace := is.DeletionGracePeriodSeconds
			if p.Namespace == "demo-turin" && !held(is) || p.Namespace != "demo-turin" && grace != nil && *grace != years {
				t.Errorf("after %v: pod %s/%s with grace period %v, found: %v", passed, p.Namespace, p.Name, grace, err == nil)
			}
		}
	}
	at(4*time.Minute, func(p *corev1.Pod) bool {
		return p.Name == "running" && p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == years
	})
	at(5*time.Minute+5*time.Second, func(p *corev1.Pod) bool {
		return p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 1
	})
	at(6*time.Minute+5*time.Second, func(p *corev1.Pod) bool { return p.Name == "" })
}
