// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/seed"
)

// TestMoved: only updates that change a pod's node or its addresses in the pod network enqueue
// nodes.
func TestMoved(t *testing.T) {
	for _, c := range []struct {
		change string
		make   func(p *corev1.Pod)
		moved  bool
	}{
		{"it is ready", func(p *corev1.Pod) { p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady}} }, false},
		{"it has a label", func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, false},
		{"it terminates", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, false},
		{"it is bound", func(p *corev1.Pod) { p.Spec.NodeName = "n2" }, true},
		{"it has an address", func(p *corev1.Pod) { p.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.2"}} }, true},
		{"it has no address any more", func(p *corev1.Pod) { p.Status.PodIPs = nil }, true},
		{"it has ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, true},
		{"it runs at a peer", func(p *corev1.Pod) { p.Labels = map[string]string{api.LabelShadowPod: api.True} }, true},
	} {
		before := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}}}
		after := before.DeepCopy()
		c.make(after)
		if got := Moved(before, after); got != c.moved {
			t.Errorf("%s: moved is %t", c.change, got)
		}
	}
}

// TestOwnPodsAreEnough: if the range of a node does not contain its own pods, other pods change
// nothing. Otherwise a pod of another node that lies in it does.
func TestOwnPodsAreEnough(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.0.1.0/24"}}}
	var alone, foreign int
	for n, r := range seed.Samples(t, 2000) {
		var own, all []corev1.Pod
		for range r.IntN(6) {
			pod := corev1.Pod{
				Spec:   corev1.PodSpec{NodeName: fmt.Sprint("n", r.IntN(3)), HostNetwork: r.IntN(9) == 0},
				Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: fmt.Sprintf("10.0.%d.%d", r.IntN(3), 1+r.IntN(4))}}},
			}
			all = append(all, pod)
			if pod.Spec.NodeName == node.Name {
				own = append(own, pod)
			}
		}
		want := podRanges(node, all)
		if Holds(node, own) {
			if !slices.Equal(want, node.Spec.PodCIDRs) {
				foreign++
			}
			continue
		}
		alone++
		if got := podRanges(node, own); !slices.Equal(got, want) {
			t.Fatalf("sample %d: %v of own pods, %v of all", n, got, want)
		}
	}
	if alone < 100 || foreign < 100 {
		t.Errorf("%d nodes whose range does not hold, %d in whose range another pod lies: too few to tell", alone, foreign)
	}
}
