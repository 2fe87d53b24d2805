// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// settling is how long a pod is left to itself: a pod just created may still be on its way
// through the caches, and where admission is off, pods deleted here come back no faster.
const settling = 5 * time.Second

// Treatment is what becomes of a pod admission did not see.
type Treatment int

const (
	// Leave: nothing is to be done.
	Leave Treatment = iota
	// Later: look again after the time given.
	Later
	// Tolerate: the toleration is added.
	Tolerate
	// Replace: the pod is deleted; its controller makes one that passes admission.
	Replace
	// Tell: only the user can help.
	Tell
)

// EarlierPodInput is a pod and the request to extend its namespace, nil when there is none.
type EarlierPodInput struct {
	Pod          *corev1.Pod
	Offloading   *offloadingv1beta1.NamespaceOffloading
	RuntimeClass string
	// Travels as for AdmitPod.
	Travels bool
	Now     time.Time
}

// EarlierPod decides about a pod that waits to be scheduled in an extended namespace: it came
// before the namespace was extended, or while admission was down. Tolerations of a pod can be
// added to, its affinity cannot be changed.
//
//	differs in        pod has a controller   treatment
//	nothing           any                    Leave
//	tolerations       any                    Tolerate
//	affinity          yes                    Replace
//	affinity          no                     Tell
func EarlierPod(in EarlierPodInput) (Treatment, time.Duration) {
	pod := in.Pod
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || in.Offloading == nil || in.Offloading.DeletionTimestamp != nil {
		return Leave, 0
	}
	wanted := AdmitPod(pod, in.Offloading.Spec, in.RuntimeClass, in.Travels)
	if equality.Semantic.DeepEqual(pod.Spec, wanted.Spec) {
		return Leave, 0
	}
	if age := in.Now.Sub(pod.CreationTimestamp.Time); age < settling {
		return Later, settling - age
	}
	switch {
	case equality.Semantic.DeepEqual(pod.Spec.Affinity, wanted.Spec.Affinity):
		return Tolerate, 0
	case metav1.GetControllerOf(pod) != nil:
		return Replace, 0
	}
	return Tell, 0
}
