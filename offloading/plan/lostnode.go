// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/desired"
)

// ReadyChanges reports whether an update changes the readiness of a node. Most updates are
// heartbeats.
func ReadyChanges(before, after *corev1.Node) bool {
	return api.NodeReady(before) != api.NodeReady(after)
}

// LostProviderInput holds the Node of a virtual node and the offloaded pods on it.
type LostProviderInput struct {
	Root *corev1.Node
	Pods []metav1.PartialObjectMetadata
}

// lostCheck is the interval at which the pods of an unavailable provider are listed. A pod counts
// as offloaded from the provider's first status on, which may come late.
const lostCheck = 10 * time.Second

// LostProvider labels the pods of a virtual node while its provider is unavailable.
func LostProvider(in LostProviderInput) desired.Plan {
	var p desired.Plan
	lost := !api.NodeReady(in.Root)
	if lost {
		p.RequeueAfter = lostCheck
	}
	for i := range in.Pods {
		pod := &in.Pods[i]
		if labelled := pod.DeepCopy(); setLabel(labelled, api.LabelRemoteUnavailable, lost) {
			p.Actions = append(p.Actions, desired.Action{Verb: desired.Merge, Before: pod, Object: labelled})
		}
	}
	return p
}

// setLabel sets a label to true, or removes it, and reports whether that changes the object.
func setLabel(obj metav1.Object, label string, set bool) (changed bool) {
	labels := labels.Merge(obj.GetLabels(), nil)
	if _, labelled := labels[label]; labelled == set {
		return false
	}
	delete(labels, label)
	if set {
		labels[label] = api.True
	}
	obj.SetLabels(labels)
	return true
}

// Ending reports whether a pod that was created for a consumer is being deleted.
func Ending(pod *corev1.Pod) bool {
	return pod.Labels[api.LabelManagedBy] == api.ManagedByShadowPod && pod.DeletionTimestamp != nil
}

// LostPodInput holds a pod that is being deleted, and its node; nil if the node does not exist:
// then Kubernetes removes the pod.
type LostPodInput struct {
	Root *corev1.Pod
	Node *corev1.Node
}

// LostPod force-deletes a terminating pod whose node is not ready, so that no kubelet confirms its
// end.
func LostPod(in LostPodInput) desired.Plan {
	if in.Node == nil || api.NodeReady(in.Node) {
		return desired.Plan{}
	}
	return desired.Plan{Actions: []desired.Action{{Verb: desired.Delete, Object: in.Root, Grace: new(int64(0))}}}
}
