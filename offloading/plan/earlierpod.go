// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// settling is the minimum age of a pod before it is changed. Caches may not show all of a new pod
// yet, and without admission a replaced pod is not replaced again at a higher rate.
const settling = 5 * time.Second

// AnnotationLetGo marks a pod whose labels were removed so that its controller releases it. The pod
// is deleted next.
const AnnotationLetGo = "offloading.liqo.io/let-go"

// EarlierPodInput holds a pod and the NamespaceOffloading of its namespace; nil if there is none.
type EarlierPodInput struct {
	Root         *corev1.Pod
	Offloading   *offloadingv1beta1.NamespaceOffloading
	RuntimeClass string
	// ClaimsAllow says that the claims of the pod let it leave this cluster, as for AdmitPod.
	ClaimsAllow bool
	// Replacing lists further kinds of controllers that replace deleted pods.
	Replacing Replacing
	Now       time.Time
}

// EarlierPod decides about a pod that is pending, or on a virtual node that its namespace is not
// offloaded to any more. It was created before the namespace was offloaded as it is now, or while
// admission was down. Kubernetes allows to add tolerations to a pod, but not to change its
// affinity.
//
//	pod                                              would be replaced   plan
//	was released by its Job                          any                 replaced
//	was admitted, now with another result            yes                 replaced
//	is on a virtual node because it tolerates all    any                 as below, after roomTime
//	was admitted to fewer nodes than it would be now no                  reported to the user
//	equals the admitted pod                          any                 –
//	lacks the toleration                             any                 gets the toleration
//	differs in affinity                              yes                 replaced
//	differs in affinity                              no                  reported to the user
//
// The controllers of Replacing and Jobs replace a pod that is deleted.
func EarlierPod(in EarlierPodInput) desired.Plan {
	p := in.plan()
	age := in.Now.Sub(in.Root.CreationTimestamp.Time)
	if age < settling && (p.State != desired.Ready || len(p.Actions) > 0) {
		return desired.Plan{RequeueAfter: settling - age}
	}
	return p
}

// Waits reports whether EarlierPod may plan anything for a pod.
func Waits(pod *corev1.Pod) bool {
	started := pod.Status.Phase != "" && pod.Status.Phase != corev1.PodPending
	placed := pod.Spec.NodeName != "" && pod.Status.Reason != api.ReasonBackOff
	return pod.DeletionTimestamp == nil && !started && !placed
}

func (in EarlierPodInput) plan() desired.Plan {
	pod, pending := in.Root, in.Root.Spec.NodeName == ""
	if !Waits(pod) {
		return desired.Plan{}
	}
	if _, letGo := pod.Annotations[AnnotationLetGo]; letGo {
		return in.replaced()
	}
	now := in.admitted()
	switch was := pod.Annotations[api.AnnotationAdmitted]; {
	case was == "" && now == noVirtualNode && !pending:
		return in.strayed()
	case was != "" && was != now && (was != anyNode || in.Replacing.replaces(pod) || controllerKind(pod) == job):
		return in.replaced()
	case !in.offloaded() || !pending:
		return desired.Plan{}
	}
	wanted := AdmitPod(pod, in.Offloading.Spec, in.RuntimeClass, in.ClaimsAllow)
	switch {
	case equality.Semantic.DeepEqual(pod.Spec, wanted.Spec):
		return desired.Plan{}
	case equality.Semantic.DeepEqual(pod.Spec.Affinity, wanted.Spec.Affinity):
		return desired.Plan{Actions: []desired.Action{{Verb: desired.Merge, Locked: true, Before: pod, Object: wanted}}}
	}
	return in.replaced()
}

func (in EarlierPodInput) offloaded() bool {
	return in.Offloading != nil && in.Offloading.DeletionTimestamp == nil
}

// admitted returns the value of AnnotationAdmitted that the pod would get now. The claims of a pod that has a
// node have let it leave this cluster.
func (in EarlierPodInput) admitted() string {
	offloaded, claimsAllow := in.offloaded(), in.ClaimsAllow || in.Root.Spec.NodeName != ""
	switch home := !offloaded || staysHome(in.Root, in.Offloading.Spec, claimsAllow); {
	case home && toleratesAll(&in.Root.Spec) && !exempt(in.Root, in.RuntimeClass):
		return noVirtualNode
	case offloaded:
		return admitted(in.Offloading.Spec)
	}
	return ""
}

// strayed plans for a pod that the scheduler has placed on a virtual node because it tolerates all taints,
// while admission was down. One whose manifest names the node is meant to be there: nobody else sets the
// condition PodScheduled.
func (in EarlierPodInput) strayed() desired.Plan {
	pod, age := in.Root, in.Now.Sub(in.Root.CreationTimestamp.Time)
	switch {
	case !slices.ContainsFunc(pod.Status.Conditions,
		func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled }):
		return desired.Plan{}
	case age < roomTime:
		return desired.Plan{RequeueAfter: roomTime - age}
	case controllerKind(pod) == job || in.Replacing.replaces(pod):
		return in.replaced()
	}
	return desired.Block("PlacedByTolerations", "on a virtual node because it tolerates all taints, though its "+
		"namespace is not offloaded; delete it and create it again")
}

// replaced deletes a pod whose controller creates another, and reports other pods to the user. A
// Job would count the deleted pod as failed, so the labels that it selects are removed first, and
// the Job releases the pod.
func (in EarlierPodInput) replaced() desired.Plan {
	pod, ofJob := in.Root, controllerKind(in.Root) == job
	_, letGo := pod.Annotations[AnnotationLetGo]
	if !ofJob && !letGo && !in.Replacing.replaces(pod) {
		return desired.Block("CreatedBeforeOffloading",
			"created before its namespace was offloaded as it is now, and its affinity cannot be changed; delete it "+
				"and create it again")
	}
	var p desired.Plan
	if ofJob {
		free := pod.DeepCopy()
		free.Labels = nil
		metav1.SetMetaDataAnnotation(&free.ObjectMeta, AnnotationLetGo, api.True)
		p.Actions = append(p.Actions, desired.Action{Verb: desired.Merge, Locked: true, Before: pod, Object: free})
	}
	p.Actions = append(p.Actions, desired.Action{Verb: desired.Delete, Object: pod, Last: true, Event: desired.Event{
		Reason: "OffloadingReplaced",
		Message: "deleted, so that its controller makes one that may run where the offloading of its namespace " +
			"allows now",
	}})
	return p
}
