// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPodsAgeFromTheTimeTheyWereBound counts pods by state. A pod that waited for the scheduler is
// not late at the provider, and one within its grace period is not stuck.
func TestPodsAgeFromTheTimeTheyWereBound(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	pod := func(phase corev1.PodPhase, created, bound time.Duration) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: ago(created)},
			Status: corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: ago(bound),
			}}},
		}
	}
	deleted := func(p corev1.Pod, end metav1.Time) corev1.Pod {
		p.DeletionTimestamp = &end
		return p
	}
	pinned := func(p corev1.Pod) corev1.Pod {
		p.Spec.NodeName = "milan"
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"milan"}},
			}}},
		}}}
		return p
	}
	counts, oldest := podStates([]corev1.Pod{
		pod(corev1.PodPending, time.Hour, time.Minute), pod(corev1.PodPending, time.Minute, time.Second),
		pod("", 2*time.Minute, 2*time.Second), pod(corev1.PodRunning, time.Hour, time.Hour),
		deleted(pod(corev1.PodRunning, time.Hour, time.Hour), ago(-30*time.Second)),
		pinned(pod(corev1.PodPending, time.Hour, time.Hour)), // of a DaemonSet: it waits for ever
	}, now)
	wantCounts := map[string]int{pending: 3, "running": 1, "succeeded": 0, "failed": 0, terminating: 1}
	wantOldest := map[string]time.Duration{pending: time.Minute, terminating: 0}
	if diff := cmp.Diff(wantCounts, counts) + cmp.Diff(wantOldest, oldest); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, oldest = podStates([]corev1.Pod{deleted(pod(corev1.PodRunning, time.Hour, time.Hour), ago(time.Minute))}, now); oldest[terminating] != time.Minute {
		t.Errorf("a pod a minute past its grace period is stuck for %s", oldest[terminating])
	}
}
