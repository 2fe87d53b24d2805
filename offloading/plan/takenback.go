// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

const (
	// takenBackGrace is how long the pods of a consumer may take to end once their namespace is
	// being deleted. It is ten times the default grace period; a consumer may set years.
	takenBackGrace = 5 * time.Minute
	// killTime is how long the kubelet then has to kill a pod and to confirm its end.
	killTime = time.Minute
)

// TakenBackInput holds a namespace that is being deleted, and the pods of its consumer.
type TakenBackInput struct {
	Root *corev1.Namespace
	Pods []corev1.Pod
	Now  time.Time
}

// TakenBack ends the pods in a namespace that is being deleted. It deletes pods with a short grace
// period first and force-deletes them later: processes of a force-deleted pod run until its former
// grace period is over.
//
//	deletion ── 5 min ── killed ── 1 min ── removed
func TakenBack(in TakenBackInput) desired.Plan {
	grace, after := ending(in.Root, in.Now)
	p := desired.Plan{RequeueAfter: after}
	for i := range in.Pods {
		pod := &in.Pods[i]
		beingKilled := grace != nil && *grace > 0 && pod.DeletionGracePeriodSeconds != nil &&
			*pod.DeletionGracePeriodSeconds <= *grace
		if grace != nil && !beingKilled {
			p.Actions = append(p.Actions, desired.Action{Verb: desired.Delete, Object: pod, Grace: grace})
		}
	}
	return p
}

// ending returns the grace period with which the pods are deleted, nil while they may end by
// themselves, and the time until the next reconcile.
func ending(namespace *corev1.Namespace, now time.Time) (grace *int64, after time.Duration) {
	switch since := now.Sub(namespace.DeletionTimestamp.Time); {
	case since < takenBackGrace:
		return nil, takenBackGrace - since
	case since < takenBackGrace+killTime:
		return new(int64(1)), takenBackGrace + killTime - since
	}
	return new(int64(0)), killTime
}

// WithdrawnInput holds a pod that was made for a ShadowPod. ShadowPod is the one that has the name of
// the pod now; nil = none.
type WithdrawnInput struct {
	Root      *corev1.Pod
	ShadowPod *offloadingv1beta1.ShadowPod
}

// Withdrawn deletes the pod of a ShadowPod that is gone, also if another has its name. It must be
// called only after the ShadowPod's deletion was observed.
func Withdrawn(in WithdrawnInput) desired.Plan {
	of := ShadowPodUID(in.Root)
	if of == "" || in.ShadowPod != nil && in.ShadowPod.UID == of {
		return desired.Plan{}
	}
	return desired.Plan{Actions: desired.Deletes(in.Root)}
}

// ShadowPodUID returns the UID of the ShadowPod that a pod was made for; empty for any other pod.
func ShadowPodUID(pod *corev1.Pod) types.UID {
	owner := metav1.GetControllerOfNoCopy(pod)
	if pod.Labels[api.LabelManagedBy] != api.ManagedByShadowPod || owner == nil || owner.Kind != "ShadowPod" {
		return ""
	}
	return owner.UID
}
