// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// TestWhatKeepsAPod: each pod that is not ready says why, and where.
func TestWhatKeepsAPod(t *testing.T) {
	t.Parallel()
	condition := func(of corev1.PodConditionType, message string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: of, Status: corev1.ConditionFalse, Message: message}}}
	}
	waiting := condition(corev1.PodReady, "the network is not ready")
	waiting.Phase = corev1.PodPending
	image := corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Image: "shop",
		State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "denied"}}}}}
	for name, c := range map[string]struct {
		node     string
		status   corev1.PodStatus
		deleted  bool
		want, is string
	}{
		"evicted": {"rome-1", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on\nmemory"}, false,
			"failed: Evicted: low on memory", "Failed"},
		"failed":      {"rome-1", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Aborted"}, false, "failed: Aborted", "Failed"},
		"gate":        {"rome-1", condition(corev1.PodReady, "a gate is closed"), false, "a gate is closed", "Running, not ready"},
		"warning":     {"rome-1", waiting, false, "no volume", "Pending"},
		"unscheduled": {"", condition(corev1.PodScheduled, "no CPU"), false, "no node takes pod p: no CPU" + makeRoom, "Running, not ready"},
		"full provider": {"milan", condition(corev1.PodScheduled, "no CPU"), false,
			"at milan: no node takes pod p: no CPU" + elsewhere, "Running, not ready"},
		"provider's image": {"milan", image, false, `at milan: node milan cannot get image "shop" (ErrImagePull: denied)`,
			"ErrImagePull"},
		"going": {"milan", waiting, true, "at milan: no volume", "Terminating"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Snapshot{}
			s.VirtualNodes.Items = []offv1beta1.VirtualNode{{ObjectMeta: metaOf("", "milan"),
				Spec: offv1beta1.VirtualNodeSpec{ClusterID: "milan"}}}
			s.Offloadings.Items = []offv1beta1.NamespaceOffloading{{ObjectMeta: metaOf("shop", "offloading")}}
			s.Events.Items = []corev1.Event{{Type: corev1.EventTypeWarning, Message: "no volume",
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "p"}}}
			pod := corev1.Pod{ObjectMeta: metaOf("shop", "p"), Spec: corev1.PodSpec{NodeName: c.node}, Status: c.status}
			if c.deleted {
				pod.DeletionTimestamp = &metav1.Time{}
			}
			s.Pods.Items = []corev1.Pod{pod}
			if got := s.Workloads().Namespaces[0].Pods[0]; got.Why != c.want || got.State() != c.is {
				t.Errorf("%s: %q, want %s: %q", got.State(), got.Why, c.is, c.want)
			}
		})
	}
}

// TestReasonsShareObjects: lists with room behind their ends, as decoders leave it, are not written to.
func TestReasonsShareObjects(t *testing.T) {
	t.Parallel()
	room := make([]corev1.ContainerStatus, 1, 2)
	room[0].Name = "init"
	PodProblem(&corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: room,
		ContainerStatuses: []corev1.ContainerStatus{{Name: "main"}}}})
	if got := room[:2][1].Name; got != "" {
		t.Errorf("container %q was written to the list of init containers", got)
	}
	names := make([]string, 1, 2)
	n := &corev1.Namespace{Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}}}
	n.Finalizers = names
	if held := finalizersOf(n); len(held) != 2 || names[:2][1] != "" {
		t.Errorf("%v; a finalizer was written to the object", held)
	}
}
