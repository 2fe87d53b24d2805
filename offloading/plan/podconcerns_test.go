// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/offloading/plan"
)

// TestStartIsIrrelevant shows which updates of a new pod are relevant for its ShadowPod: those of
// fields that the plan reads.
func TestStartIsIrrelevant(t *testing.T) {
	now := time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		claim    string
		change   func(p *corev1.Pod)
		concerns bool
	}{
		{"bound", func(p *corev1.Pod) { p.Spec.NodeName, p.ResourceVersion, p.Generation = "n1", "2", 2 }, false},
		{"started", func(p *corev1.Pod) { p.Status.Phase, p.Status.PodIP = corev1.PodRunning, "10.0.0.1" }, false},
		{"finished", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, true},
		{"deleted", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }, true},
		{"labelled", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, true},
		{"resized", func(p *corev1.Pod) { p.Spec.Containers = []corev1.Container{{Name: "web"}} }, true},
		{"of a job, bound", func(p *corev1.Pod) { p.Spec.RestartPolicy, p.Spec.NodeName = corev1.RestartPolicyNever, "n1" }, true},
		{"started late", func(p *corev1.Pod) {
			p.CreationTimestamp, p.Status.Phase = metav1.Time{Time: now.Add(-time.Hour)}, corev1.PodRunning
		}, true},
	} {
		before := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", CreationTimestamp: metav1.Time{Time: now.Add(-time.Second)}}}
		before.Spec.RestartPolicy = corev1.RestartPolicyAlways
		after := before.DeepCopy()
		c.change(after)
		if got := plan.PodConcerns(before, after, now); got != c.concerns {
			t.Errorf("a pod that is %s: concerns is %v", c.claim, got)
		}
	}
}
