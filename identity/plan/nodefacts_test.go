// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
)

// TestNodesDiffer: the updates that a kubelet makes all the time change nothing that consumers are told.
func TestNodesDiffer(t *testing.T) {
	t.Parallel()
	before := &corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{
		Architecture: "amd64", Swap: &corev1.NodeSwapStatus{}, RunningInUserNamespace: new(false),
	}}}
	after := before.DeepCopy()
	after.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
	if plan.NodesDiffer(before, after) {
		t.Error("a heartbeat counts")
	}
	after.Status.NodeInfo.KernelVersion = "6.12.2"
	if !plan.NodesDiffer(before, after) {
		t.Error("another kernel does not count")
	}
}

// TestNodeFacts: an administrator withholds each fact. Only nodes that a grant leads to count, and what they tell of
// themselves is bounded.
func TestNodeFacts(t *testing.T) {
	t.Parallel()
	const feature = "RestartAllContainersOnContainerExits"
	node := func(set map[string]string, architecture, system string, taints ...corev1.Taint) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: set}, Spec: corev1.NodeSpec{Taints: taints}, Status: corev1.NodeStatus{
			DeclaredFeatures: []string{feature}, NodeInfo: corev1.NodeSystemInfo{Architecture: architecture, KernelVersion: "6.12", OSImage: system},
		}}
	}
	etcd := map[string]string{"node-role.kubernetes.io/etcd": "true"}
	nodes := []corev1.Node{node(nil, "amd64", "Debian"), node(map[string]string{"zone": "a"}, "arm64", "Debian"),
		node(etcd, "s390x", "Old", corev1.Taint{Key: "node-role.kubernetes.io/etcd", Effect: corev1.TaintEffectNoExecute})}
	everything := plan.Tell{DeclaredFeatures: true, Architecture: true, System: true}
	for name, c := range map[string]struct {
		nodes    []corev1.Node
		selector map[string]string
		tell     plan.Tell
		want     *authv1beta1.NodeFacts
	}{
		"nothing": {nodes: nodes},
		"features": {nodes: nodes, tell: plan.Tell{DeclaredFeatures: true},
			want: &authv1beta1.NodeFacts{DeclaredFeatures: []string{feature}}},
		"architecture": {nodes: nodes, tell: plan.Tell{Architecture: true},
			want: &authv1beta1.NodeFacts{Architectures: []string{"amd64", "arm64"}}},
		"system": {nodes: nodes, tell: plan.Tell{System: true},
			want: &authv1beta1.NodeFacts{KernelVersion: "6.12", OSImage: "Debian"}},
		"a selector": {nodes: nodes, selector: map[string]string{"zone": "a"}, tell: plan.Tell{Architecture: true},
			want: &authv1beta1.NodeFacts{Architectures: []string{"arm64"}}},
		"a selector without nodes": {nodes: nodes, selector: map[string]string{"zone": "b"}, tell: everything},
		"odd texts": {nodes: []corev1.Node{node(nil, "x86_64", strings.Repeat("é", 900)), node(nil, "no label", strings.Repeat("é", 900))}, tell: everything,
			want: &authv1beta1.NodeFacts{DeclaredFeatures: []string{feature}, Architectures: []string{"x86_64"}, KernelVersion: "6.12", OSImage: api.Printable(strings.Repeat("é", 900))}},
	} {
		if diff := cmp.Diff(c.want, plan.NodeFacts(c.nodes, c.selector, c.tell), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
