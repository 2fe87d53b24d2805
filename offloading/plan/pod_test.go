// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// tier selects virtual nodes of a tier.
func tier(name string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "tier", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}},
	}}}
}

// TestMisplaced checks which pods run where new ones would not, after each change of the offloading.
func TestMisplaced(t *testing.T) {
	virtual := map[string]corev1.Node{"milan": {ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{"tier": "gold", api.LabelType: api.TypeVirtualNode}}}}
	pod := func(name, node string, change func(*corev1.Pod)) corev1.Pod {
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		if change != nil {
			change(&p)
		}
		return p
	}
	pods := []corev1.Pod{
		pod("here", "rome-n1", nil), pod("there", "milan", nil), pod("waiting", "", nil),
		pod("finished", "milan", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }),
		pod("leaving", "milan", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }),
		pod("daemon", "rome-n1", func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "daemon", Controller: new(true)}}
		}),
		pod("by class", "milan", func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("liqo") }),
	}
	for _, c := range []struct {
		strategy offloadingv1beta1.PodOffloadingStrategy
		selector *corev1.NodeSelector
		want     []string
	}{
		{offloadingv1beta1.LocalStrategy, &corev1.NodeSelector{}, []string{"there"}},
		{offloadingv1beta1.RemoteStrategy, &corev1.NodeSelector{}, []string{"here"}},
		{offloadingv1beta1.RemoteStrategy, tier("silver"), []string{"here", "there"}},
		{offloadingv1beta1.LocalAndRemoteStrategy, &corev1.NodeSelector{}, nil},
		{offloadingv1beta1.LocalAndRemoteStrategy, tier("gold"), nil},
		{offloadingv1beta1.LocalAndRemoteStrategy, tier("silver"), []string{"there"}},
	} {
		spec := offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: c.strategy, ClusterSelector: c.selector}
		if diff := cmp.Diff(c.want, Misplaced(pods, virtual, spec, "liqo")); diff != "" {
			t.Errorf("%s, %v:\n%s", c.strategy, c.selector, diff)
		}
	}
}

// TestExtended checks which providers a namespace is offloaded to: those with a selected virtual
// node, and those that keep it for its volumes since labels changed, until its selector changes as
// well.
func TestExtended(t *testing.T) {
	vn := func(name, provider, label string) offloadingv1beta1.VirtualNode {
		n := offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Spec.ClusterID, n.Spec.Labels = provider, map[string]string{"tier": label}
		return n
	}
	vns := []offloadingv1beta1.VirtualNode{vn("milan", "milan", "gold"), vn("milan-2", "milan", "silver"), vn("turin", "turin", "gold")}
	asks := func(namespace string, selector *corev1.NodeSelector) offloadingv1beta1.NamespaceOffloading {
		return offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace},
			Spec: offloadingv1beta1.NamespaceOffloadingSpec{ClusterSelector: selector}}
	}
	ends := asks("ends", &corev1.NodeSelector{})
	ends.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	offloadings := []offloadingv1beta1.NamespaceOffloading{asks("all", &corev1.NodeSelector{}), asks("gold", tier("gold")), asks("silver", tier("silver")), asks("none", tier("lead")), ends}
	nodes := map[string]corev1.Node{"turin": {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"tier": "silver"}}}} // a user's label
	want := map[string][]string{"all": {"milan", "turin"}, "gold": {"milan"}, "silver": {"milan", "turin"}}
	if diff := cmp.Diff(want, Extended(offloadings, vns, nodes, nil)); diff != "" {
		t.Error(diff)
	}
	current := offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Labels: map[string]string{api.LabelReplication: api.True, api.LabelRemoteClusterID: "turin"},
	}}
	matched := "gold=" + hash(selectorTerms(offloadings[1].Spec)) + ",none=former"
	current.Annotations = map[string]string{annotationSelectors: matched}
	current.Spec.DesiredMapping = map[string]string{"gold": "gold-rome", "none": "none-rome"}
	want["gold"] = []string{"milan", "turin"}
	got := Extended(offloadings, vns, nodes, []offloadingv1beta1.NamespaceMap{current})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
