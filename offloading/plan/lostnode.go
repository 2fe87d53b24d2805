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

// ReadyChanges tells whether a node becomes ready, or is ready no longer. Kubelets write theirs much more often.
func ReadyChanges(before, after *corev1.Node) bool {
	return api.NodeReady(before) != api.NodeReady(after)
}

// LostProviderInput is a virtual node and the offloaded pods on it.
type LostProviderInput struct {
	Root *corev1.Node
	Pods []metav1.PartialObjectMetadata
}

// lostCheck is between two looks at the pods of a lost provider: one may come to be offloaded only then, for it is
// the provider's first word of a pod that makes it so.
const lostCheck = 10 * time.Second

// LostProvider labels the pods of a virtual node while its provider is lost.
func LostProvider(in LostProviderInput) desired.Plan {
	var p desired.Plan
	lost := !api.NodeReady(in.Root)
	if lost {
		p.RequeueAfter = lostCheck
	}
	for i := range in.Pods {
		pod := &in.Pods[i]
		if labelled := pod.DeepCopy(); mark(labelled, api.LabelRemoteUnavailable, lost) {
			p.Actions = append(p.Actions, desired.Action{Verb: desired.Merge, Before: pod, Object: labelled})
		}
	}
	return p
}

// mark sets a label to true, or takes it away, and reports whether that changes the object.
func mark(obj metav1.Object, label string, set bool) (changed bool) {
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

// Ending reports whether a pod made for a consumer is being deleted.
func Ending(pod *corev1.Pod) bool {
	return pod.Labels[api.LabelManagedBy] == api.ManagedByShadowPod && pod.DeletionTimestamp != nil
}

// LostPodInput is a pod that ends and its node; nil when that does not exist: Kubernetes collects such pods itself.
type LostPodInput struct {
	Root *corev1.Pod
	Node *corev1.Node
}

// LostPod removes a pod that ends on a node which cannot confirm it any more.
func LostPod(in LostPodInput) desired.Plan {
	if in.Node == nil || api.NodeReady(in.Node) {
		return desired.Plan{}
	}
	return desired.Plan{Actions: []desired.Action{{Verb: desired.Delete, Object: in.Root, Grace: new(int64(0))}}}
}
