// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import corev1 "k8s.io/api/core/v1"

// Finalizers, by the kind that carries them.
const (
	FinalizerTenant              = "tenant.liqo.io/finalizer"
	FinalizerReplicator          = "crdreplicator.liqo.io/operator" // control-plane kubeconfig Secret
	FinalizerReplicated          = "crdreplicator.liqo.io/resource" // local side of a replicated object
	FinalizerNetwork             = "network.ipam.liqo.io/finalizer"
	FinalizerWgGateway           = "networking.liqo.io/clusterrolebinding"
	FinalizerNamespaceOffloading = "namespaceoffloading-controller.liqo.io/finalizer"
	FinalizerNamespaceMap        = "namespacemap-controller.liqo.io/finalizer"
	FinalizerVirtualNode         = "virtualnode-controller.liqo.io/finalizer"
)

// FieldManagerReflection is the field manager of reflected objects in other clusters. Controllers use
// "liqo/<name>".
const FieldManagerReflection = "reflection.liqo.io"

// The taint that keeps pods which are not offloaded off virtual nodes.
const (
	VirtualNodeTaintKey   = "virtual-node.liqo.io/not-allowed"
	VirtualNodeTaintValue = True
)

// VirtualNodeTaint returns the taint of every virtual node.
func VirtualNodeTaint() corev1.Taint {
	return corev1.Taint{Key: VirtualNodeTaintKey, Value: VirtualNodeTaintValue, Effect: corev1.TaintEffectNoExecute}
}

// ReasonBackOff is the reason of a pod on a virtual node to which its namespace is not offloaded. Offload
// the namespace, or keep the pod off virtual nodes.
const ReasonBackOff = "OffloadingBackOff"

// NoRoomTaintKey is the key of the taint of a virtual node whose provider cannot schedule pods. Pods that
// can run elsewhere are scheduled there.
const NoRoomTaintKey = "virtual-node.liqo.io/no-room"

// VirtualNodeToleration returns the toleration of VirtualNodeTaint that offloaded pods have.
func VirtualNodeToleration() corev1.Toleration {
	return corev1.Toleration{
		Key:      VirtualNodeTaintKey,
		Operator: corev1.TolerationOpEqual,
		Value:    VirtualNodeTaintValue,
		Effect:   corev1.TaintEffectNoExecute,
	}
}
