// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
)

// TestAttackPodsHoldNamespace: a consumer gives a pod whose process ignores SIGTERM years to end, by its
// terminationGracePeriodSeconds or by the grace period of a deletion, so that its remote namespace is never taken back.
//
// Outcome: five minutes after the deletion of the namespace began its pods are killed, and those that are still there
// a minute later are removed. Pods of other namespaces keep the time they were given.
func TestAttackPodsHoldNamespace(t *testing.T) {
	t.Parallel()
	ctx, years := t.Context(), int64(10*365*24*3600)
	c, err := client.New(apitest.Start(t).Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
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
	at := func(since time.Duration, held func(*corev1.Pod) bool) {
		t.Helper()
		for _, namespace := range []string{"demo-turin", "stays-turin", "own"} {
			r := takenBack{c, func() time.Time { return began.Add(since) }}
			result, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Name: namespace}})
			if again := result.RequeueAfter > 0; err != nil || again != (namespace == "demo-turin") {
				t.Errorf("after %v in %s: again in %v, %v", since, namespace, result.RequeueAfter, err)
			}
		}
		for _, p := range pods {
			now := &corev1.Pod{}
			err := c.Get(ctx, client.ObjectKeyFromObject(p), now)
			do(client.IgnoreNotFound(err))
			if p.Namespace == "demo-turin" && !held(now) || p.Namespace != "demo-turin" && now.DeletionGracePeriodSeconds != nil && *now.DeletionGracePeriodSeconds != years {
				t.Errorf("after %v: pod %s/%s with grace period %v, found: %v", since, p.Namespace, p.Name, now.DeletionGracePeriodSeconds, err == nil)
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
