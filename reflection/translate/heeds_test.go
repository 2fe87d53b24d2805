// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/reflection/translate"
)

// TestSilentPodsReportNothing shows which events of a remote pod lead to another look at its home pod.
func TestSilentPodsReportNothing(t *testing.T) {
	remote := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
		change(p)
		return p
	}
	made := remote(func(*corev1.Pod) {})
	bound := remote(func(p *corev1.Pod) { p.Spec.NodeName = "n1" })
	taken := remote(func(p *corev1.Pod) { p.Status.StartTime = new(metav1.Now()) })
	failed := remote(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	deleted := remote(func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) })
	unschedulable := remote(func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
	})
	for _, c := range []struct {
		claim         string
		before, after *corev1.Pod
		reports       bool
	}{
		{"made", nil, made, false},
		{"bound", made, bound, false},
		{"taken over by its kubelet", bound, taken, true},
		{"failed before that", bound, failed, true},
		{"deleted", bound, deleted, true},
		{"made without a place", nil, unschedulable, true},
		{"given a place", unschedulable, bound, true},
		{"made anew under the same name", taken, made, true},
	} {
		if got := translate.Reports(c.before, c.after); got != c.reports {
			t.Errorf("a remote pod that is %s: reports is %v", c.claim, got)
		}
	}
}

// TestStatusLeavesTokens shows which updates of a home pod lead to another look at its tokens.
func TestStatusLeavesTokens(t *testing.T) {
	for _, c := range []struct {
		claim   string
		change  func(*corev1.Pod)
		changes bool
	}{
		{"started", func(p *corev1.Pod) { p.Status.Phase, p.Status.StartTime = corev1.PodRunning, new(metav1.Now()) }, false},
		{"labelled", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, false},
		{"finished", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, true},
		{"deleted", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, true},
		{"made anew", func(p *corev1.Pod) { p.UID = "u2" }, true},
		{"to use the provider's API server", func(p *corev1.Pod) {
			p.Annotations = map[string]string{api.AnnotationAPIServerSupport: "remote"}
		}, true},
	} {
		before := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u1"}}
		after := before.DeepCopy()
		c.change(after)
		if got := translate.ChangesTokens(before, after); got != c.changes {
			t.Errorf("a pod that is %s: its tokens may change is %v", c.claim, got)
		}
	}
}
