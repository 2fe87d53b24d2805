// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"cmp"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
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
	for age, concerns := range map[time.Duration]bool{time.Second: false, time.Hour: true} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", CreationTimestamp: metav1.Time{Time: now.Add(-age)}}}
		pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
		if got := plan.PodConcerns(nil, pod, now); got != concerns {
			t.Errorf("a pod that was first seen at the age of %s: concerns is %v", age, got)
		}
	}
}

// TestPhaseIsCopiedWhenCalm shows when the phase of a pod that runs comes into its ShadowPod, or is looked at again.
func TestPhaseIsCopiedWhenCalm(t *testing.T) {
	now := time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		age, lastMade, again time.Duration // before now, before now, after now
		policy               corev1.RestartPolicy
		phase                corev1.PodPhase
		written              bool
	}{
		{age: 10 * time.Second, lastMade: time.Hour, again: 20 * time.Second},
		{age: 31 * time.Second, lastMade: time.Hour, written: true},
		{age: 31 * time.Second, lastMade: 4 * time.Second, again: 30 * time.Second},
		{age: 31 * time.Second, lastMade: 6 * time.Second, written: true},
		{age: 11 * time.Minute, lastMade: 0, written: true},
		{age: time.Second, lastMade: 0, phase: corev1.PodFailed, written: true},
		{age: time.Second, lastMade: 0, policy: corev1.RestartPolicyNever, written: true},
	} {
		root := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "s"}}
		root.Spec.Pod.RestartPolicy = cmp.Or(c.policy, corev1.RestartPolicyAlways)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", CreationTimestamp: metav1.Time{Time: now.Add(-c.age)}}}
		pod.Status.Phase = cmp.Or(c.phase, corev1.PodRunning)
		p := plan.ShadowPod(plan.ShadowPodInput{Root: root, Pod: pod, Now: now, LastMade: now.Add(-c.lastMade)})
		if (p.Status != nil) != c.written || p.RequeueAfter != c.again {
			t.Errorf("%+v: the phase is written: %v, looked at again after %s", c, p.Status != nil, p.RequeueAfter)
		}
	}
}
