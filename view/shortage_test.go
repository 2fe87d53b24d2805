// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// TestShortageOfWhatIsGranted: the provider that a pod waits for is named with what is left, and
// only if the pod may run there and the scheduler names the resource.
func TestShortageOfWhatIsGranted(t *testing.T) {
	t.Parallel()
	const used = "node milan: too little of the granted memory is left: 3Gi of 8Gi is free, and pod shop/web " +
		"requests 5Gi; delete pods there"
	const more = ", or ask for more: 'liqoctl create resourceslice big -n liqo-tenant-milan --remote-cluster-id " +
		"milan --resource memory=10Gi'"
	const small = "node milan: too little of the granted memory is left: 3Gi of 8Gi is free, and pod shop/web " +
		"requests 9Gi; "
	pod := func(name, node, memory, message string) corev1.Pod {
		requests := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
		return corev1.Pod{ObjectMeta: metaOf("shop", name), Spec: corev1.PodSpec{NodeName: node,
			Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Message: message}}}}
	}
	const message = "0/3 nodes are available: 3 Insufficient memory."
	for name, c := range map[string]struct {
		change func(*Snapshot)
		want   []string
	}{
		"used up":  {func(*Snapshot) {}, []string{used + more}},
		"no slice": {func(s *Snapshot) { s.VirtualNodes.Items[0].Labels = nil }, []string{used}},
		"two pods": {func(s *Snapshot) { s.Pods.Items = append(s.Pods.Items, pod("x", "", "6Gi", message)) },
			[]string{used + more}},
		"more than is granted": {func(s *Snapshot) { s.Pods.Items[1] = pod("web", "", "9Gi", message) },
			[]string{small + strings.Replace(strings.TrimPrefix(more, ", or "), "10Gi", "14Gi", 1)}},
		"more than is granted, and no slice": {func(s *Snapshot) {
			s.VirtualNodes.Items[0].Labels, s.Pods.Items[1] = nil, pod("web", "", "9Gi", message)
		}, []string{small + "request less"}},
		"enough is free": {func(s *Snapshot) { s.Pods.Items[0].Status.Phase = corev1.PodSucceeded }, nil},
		"something else": {func(s *Snapshot) { s.Pods.Items[1] = pod("web", "", "5Gi", "0/3 nodes match") }, nil},
		"another node": {func(s *Snapshot) {
			s.Pods.Items[1].Spec.NodeSelector = map[string]string{"zone": "a"}
		}, nil},
		"not offloaded": {func(s *Snapshot) { s.Offloadings.Items = nil }, nil},
		"pods stay local": {func(s *Snapshot) {
			s.Offloadings.Items[0].Spec.PodOffloadingStrategy = offv1beta1.LocalStrategy
		}, nil},
		"no Node is known": {func(s *Snapshot) { s.Nodes.Items = nil }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Snapshot{Command: "liqoctl"}
			v := offv1beta1.VirtualNode{ObjectMeta: metaOf("liqo-tenant-milan", "milan")}
			v.Labels = map[string]string{api.LabelResourceSliceName: "big"}
			v.Spec.ClusterID = "milan"
			v.Spec.ResourceQuota.Hard = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi")}
			s.VirtualNodes.Items = []offv1beta1.VirtualNode{v}
			s.Nodes.Items = []corev1.Node{{ObjectMeta: metaOf("", "milan")}}
			s.Offloadings.Items = []offv1beta1.NamespaceOffloading{{ObjectMeta: metaOf("shop", "offloading")}}
			s.Pods.Items = []corev1.Pod{pod("runs", "milan", "5Gi", ""), pod("web", "", "5Gi", message)}
			c.change(s)
			if got := s.shortages()["milan"]; !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
