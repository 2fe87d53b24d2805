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
	"github.com/liqo-go/liqo/internal/desired"
)

// settling is how long a pod is left to itself: a pod just created may still be on its way
// through the caches, and where admission is off, pods deleted here come back no faster.
const settling = 5 * time.Second

// AnnotationLetGo on a pod says that its labels were taken, for its controller to let it go: all that is
// left to do is to delete it.
const AnnotationLetGo = "offloading.liqo.io/let-go"

// EarlierPodInput is a pod and the request to extend its namespace, nil when there is none.
type EarlierPodInput struct {
	Root         *corev1.Pod
	Offloading   *offloadingv1beta1.NamespaceOffloading
	RuntimeClass string
	// ClaimsAllow says that the claims of the pod let it leave this cluster, as for AdmitPod.
	ClaimsAllow bool
	Now         time.Time
}

// EarlierPod decides about a pod that waits to be scheduled, or on a virtual node where its namespace
// is no longer extended to: it came before the namespace was extended as it is now, or while admission
// was down. Tolerations of a pod can be added to; nothing else that admission does can be changed.
//
//	pod                                        has a controller   plan
//	was let go by it                           any                replaced
//	was admitted, and would be otherwise now   yes                replaced
//	was admitted to less than it would be now  no                 the user is told
//	differs in nothing                         any                -
//	differs in tolerations                     any                gets the toleration
//	differs in affinity                        yes                replaced
//	differs in affinity                        no                 the user is told
func EarlierPod(in EarlierPodInput) desired.Plan {
	p := in.plan()
	age := in.Now.Sub(in.Root.CreationTimestamp.Time)
	if age < settling && (p.State != desired.Ready || len(p.Actions) > 0) {
		return desired.Plan{RequeueAfter: settling - age}
	}
	return p
}

func (in EarlierPodInput) plan() desired.Plan {
	pod, waits := in.Root, in.Root.Spec.NodeName == ""
	if pod.DeletionTimestamp != nil || !waits && pod.Status.Reason != api.ReasonBackOff {
		return desired.Plan{}
	}
	if _, letGo := pod.Annotations[AnnotationLetGo]; letGo {
		return replaced(pod)
	}
	extended := in.Offloading != nil && in.Offloading.DeletionTimestamp == nil
	var now string
	if extended {
		now = admitted(in.Offloading.Spec)
	}
	switch was := pod.Annotations[api.AnnotationAdmitted]; {
	case was != "" && was != now && (was != anyNode || metav1.GetControllerOf(pod) != nil):
		return replaced(pod)
	case !extended || !waits:
		return desired.Plan{}
	}
	wanted := AdmitPod(pod, in.Offloading.Spec, in.RuntimeClass, in.ClaimsAllow)
	switch {
	case equality.Semantic.DeepEqual(pod.Spec, wanted.Spec):
		return desired.Plan{}
	case equality.Semantic.DeepEqual(pod.Spec.Affinity, wanted.Spec.Affinity):
		return desired.Plan{Actions: []desired.Action{{Verb: desired.Merge, Locked: true, Before: pod, Object: wanted}}}
	}
	return replaced(pod)
}

// replaced deletes a pod whose controller makes another; of another pod the user is told. A Job would count the pod as
// failed; without the labels the Job looks for it lets the pod go.
func replaced(pod *corev1.Pod) desired.Plan {
	owner := metav1.GetControllerOf(pod)
	_, letGo := pod.Annotations[AnnotationLetGo]
	if owner == nil && !letGo {
		return desired.Block("CreatedBeforeOffloading",
			"created before its namespace was offloaded as it is now, and its affinity cannot be changed; delete it "+
				"and create it again")
	}
	var p desired.Plan
	if owner != nil && owner.Kind == "Job" {
		free := pod.DeepCopy()
		free.Labels = nil
		metav1.SetMetaDataAnnotation(&free.ObjectMeta, AnnotationLetGo, api.True)
		p.Actions = append(p.Actions, desired.Action{Verb: desired.Merge, Locked: true, Before: pod, Object: free})
	}
	p.Actions = append(p.Actions, desired.Action{Verb: desired.Delete, Object: pod, Last: true, Event: desired.Event{
		Reason:  "OffloadingReplaced",
		Message: "deleted, so that its controller makes one that may run where its namespace is offloaded to now",
	}})
	return p
}
