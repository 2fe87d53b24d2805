// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
)

// LostPod reports whether a pod made for a consumer ends on a node that cannot confirm it any
// more. node is nil when it does not exist; Kubernetes collects such pods itself.
func LostPod(pod *corev1.Pod, node *corev1.Node) bool {
	return pod.Labels[api.LabelManagedBy] == api.ManagedByShadowPod && pod.DeletionTimestamp != nil && node != nil && Lost(node)
}

// ReadyChanges tells whether a node becomes ready, or is ready no longer. Kubelets write theirs much more often.
func ReadyChanges(before, after *corev1.Node) bool { return nodeReady(before) != nodeReady(after) }

// Lost tells whether what runs on a node is not to be reached.
func Lost(node *corev1.Node) bool { return !nodeReady(node) }

// RemoteUnavailable is the label a pod on a virtual node must have: present while its provider is
// lost, absent otherwise. The second result says whether the pod differs from that.
func RemoteUnavailable(pod metav1.Object, node *corev1.Node) (lost, differs bool) {
	_, labelled := pod.GetLabels()[api.LabelRemoteUnavailable]
	lost = Lost(node)
	return lost, lost != labelled
}
