// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
)

// offloading returns the conditions about virtual kubelets and nodes; nil if there is no
// VirtualNode.
func (in Input) offloading() []corev1beta1.Condition {
	if len(in.VirtualNodes) == 0 {
		return nil
	}
	kubelets, wanted, nodes := 0, 0, 0
	for _, node := range in.VirtualNodes {
		name := types.NamespacedName{Namespace: node.Namespace, Name: api.VirtualKubeletName(node.Name)}
		ready, _ := in.replicas(name)
		kubelets += min(ready, 1)
		if node.Spec.CreateNode != nil && !*node.Spec.CreateNode {
			continue
		}
		wanted++
		if in.nodeReady(node.Name) {
			nodes++
		}
	}
	const look = "; look at their pods in the tenant namespace"
	conditions := []corev1beta1.Condition{
		readiness(corev1beta1.OffloadingVirtualNodeCondition, kubelets, len(in.VirtualNodes),
			text{"VirtualNodesReady", "all virtual kubelets are ready"},
			text{"VirtualNodesSomeNotReady", "some virtual kubelets are not ready" + look},
			text{"VirtualNodesNotReady", "no virtual kubelet is ready" + look}),
	}
	if wanted == 0 {
		return conditions
	}
	return append(conditions, readiness(corev1beta1.OffloadingNodeCondition, nodes, wanted,
		text{"NodesReady", "all virtual nodes are ready"},
		text{"NodesSomeNotReady", "some virtual nodes are not ready; look at their conditions"},
		text{"NodesNotReady", "no virtual node is ready; look at their conditions"}))
}

// nodeReady reports whether the virtual Node of that name is Ready.
func (in Input) nodeReady(name string) bool {
	return slices.ContainsFunc(in.Nodes, func(n corev1.Node) bool { return n.Name == name && api.NodeReady(&n) })
}
