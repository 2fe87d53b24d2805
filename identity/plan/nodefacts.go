// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
)

// Tell selects what this cluster reports to consumers about its nodes.
type Tell struct {
	// DeclaredFeatures reports the kubelet features that all nodes declare.
	DeclaredFeatures bool `json:"declaredFeatures"`
	// Architecture reports the CPU architectures of the nodes.
	Architecture bool `json:"architecture"`
	// System reports the kernel and the operating system of the nodes.
	System bool `json:"system"`
}

// NodeFacts returns what consumers are told about the nodes that a selector leaves; nil if that is nothing.
func NodeFacts(nodes []corev1.Node, selector map[string]string, tell Tell) *authv1beta1.NodeFacts {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(node corev1.Node) bool {
		return node.Labels[api.LabelType] == api.TypeVirtualNode || reserved(node) ||
			!labels.SelectorFromSet(selector).Matches(labels.Set(node.Labels))
	})
	if len(nodes) == 0 || tell == (Tell{}) {
		return nil
	}
	facts := &authv1beta1.NodeFacts{}
	if tell.DeclaredFeatures {
		facts.DeclaredFeatures = slices.Clone(nodes[0].Status.DeclaredFeatures)
		for _, node := range nodes {
			facts.DeclaredFeatures = slices.DeleteFunc(facts.DeclaredFeatures, func(feature string) bool {
				return !slices.Contains(node.Status.DeclaredFeatures, feature)
			})
		}
	}
	if tell.Architecture {
		facts.Architectures = distinct(nodes, func(i corev1.NodeSystemInfo) string { return i.Architecture })
	}
	if tell.System {
		facts.KernelVersion = common(nodes, func(i corev1.NodeSystemInfo) string { return i.KernelVersion })
		facts.OSImage = common(nodes, func(i corev1.NodeSystemInfo) string { return i.OSImage })
	}
	return facts.Bounded()
}

// reserved reports whether a node is a control plane, or has its etcd, and takes no pods of users.
func reserved(node corev1.Node) bool {
	_, etcd := node.Labels["node-role.kubernetes.io/etcd"]
	return (etcd || ControlPlaneNode(&node)) && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule
	})
}

// distinct returns what nodes report of themselves, each once, sorted.
func distinct(nodes []corev1.Node, of func(corev1.NodeSystemInfo) string) []string {
	set := map[string]bool{}
	for i := range nodes {
		set[of(nodes[i].Status.NodeInfo)] = true
	}
	delete(set, "")
	return slices.Sorted(maps.Keys(set))
}

// common returns what all nodes report of themselves; empty if they differ.
func common(nodes []corev1.Node, of func(corev1.NodeSystemInfo) string) string {
	if all := distinct(nodes, of); len(all) == 1 {
		return all[0]
	}
	return ""
}

// NodesDiffer reports whether an update of a node changes what consumers are told, or where they reach the API server.
// The updates that kubelets make every few seconds or minutes do not.
func NodesDiffer(before, after *corev1.Node) bool {
	return !maps.Equal(before.Labels, after.Labels) || api.NodeAddressesDiffer(before, after) ||
		reserved(*before) != reserved(*after) || told(before) != told(after) ||
		!slices.Equal(before.Status.DeclaredFeatures, after.Status.DeclaredFeatures)
}

// told returns what a node reports of itself that consumers are told. Its NodeInfo has pointers, which differ always.
func told(node *corev1.Node) [3]string {
	info := node.Status.NodeInfo
	return [3]string{info.Architecture, info.KernelVersion, info.OSImage}
}
