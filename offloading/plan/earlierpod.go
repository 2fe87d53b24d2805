// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// settling is how long a pod is left to itself: a pod just created may still be on its way
// through the caches, and where admission is off, pods deleted here come back no faster.
const settling = 5 * time.Second

// AnnotationLetGo on a pod says that its labels were taken, for its controller to let it go: all that is
// left to do is to delete it.
const AnnotationLetGo = "offloading.liqo.io/let-go"

// Treatment is what becomes of a pod admission did not see.
type Treatment int

const (
	// Leave: nothing is to be done.
	Leave Treatment = iota
	// Later: look again after the time given.
	Later
	// Tolerate: the toleration is added.
	Tolerate
	// Replace: the pod is deleted; its controller makes one that passes admission as it is now.
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

// EarlierPod decides about a pod that waits to be scheduled, or on a virtual node where its namespace
// is no longer extended to: it came before the namespace was extended as it is now, or while admission
// was down. Tolerations of a pod can be added to; nothing else that admission does can be changed.
//
//	pod                                        has a controller   treatment
//	was let go by it                           any                Replace
//	was admitted, and would be otherwise now   yes                Replace
//	was admitted to less than it would be now  no                 Tell
//	differs in nothing                         any                Leave
//	differs in tolerations                     any                Tolerate
//	differs in affinity                        yes                Replace
//	differs in affinity                        no                 Tell
func EarlierPod(in EarlierPodInput) (Treatment, time.Duration) {
	treatment := in.treatment()
	if age := in.Now.Sub(in.Pod.CreationTimestamp.Time); treatment != Leave && age < settling {
		return Later, settling - age
	}
	return treatment, 0
}

func (in EarlierPodInput) treatment() Treatment {
	pod, waits := in.Pod, in.Pod.Spec.NodeName == ""
	if pod.DeletionTimestamp != nil || !waits && pod.Status.Reason != api.ReasonBackOff {
		return Leave
	}
	if _, letGo := pod.Annotations[AnnotationLetGo]; letGo {
		return Replace
	}
	replaced := Tell
	if metav1.GetControllerOf(pod) != nil {
		replaced = Replace
	}
	extended := in.Offloading != nil && in.Offloading.DeletionTimestamp == nil
	var now string
	if extended {
		now = admitted(in.Offloading.Spec)
	}
	switch was := pod.Annotations[api.AnnotationAdmitted]; {
	case was != "" && was != now && (was != anyNode || replaced == Replace):
		return replaced
	case !extended || !waits:
		return Leave
	}
	wanted := AdmitPod(pod, in.Offloading.Spec, in.RuntimeClass, in.Travels)
	switch {
	case equality.Semantic.DeepEqual(pod.Spec, wanted.Spec):
		return Leave
	case equality.Semantic.DeepEqual(pod.Spec.Affinity, wanted.Spec.Affinity):
		return Tolerate
	}
	return replaced
}
