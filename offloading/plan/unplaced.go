// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/desired"
)

const (
	// roomTime is how long a provider may look for room before a pod goes back: longer than a node
	// that restarts is away, shorter than a user waits.
	roomTime = 30 * time.Second
	// roomTimeAgain is that of a pod which came though the lack of room was known: there is no better
	// place. It is tried again because room may be elsewhere in the meantime.
	roomTimeAgain = 10 * time.Minute
	// noRoomTime is how long at least new pods are led elsewhere.
	noRoomTime = 5 * time.Minute
)

// UnplacedInput is a virtual node and pods that have not started; those of other nodes do not count.
type UnplacedInput struct {
	Root *corev1.Node
	Pods []corev1.Pod
	Now  time.Time
}

// Unplaced decides about the pods of a virtual node for which its provider has no room. Their
// controllers make others, which the home scheduler places; it knows nothing of the provider's nodes,
// so a taint says that any other place is better.
//
//	           30 s               10 min                 no pod waits
//	├ pod waits ┼ taint, replaced
//	                ├ one comes though ┼ replaced
//	            ├ taint ── at least 5 min ─────────────── ┤
func Unplaced(in UnplacedInput) desired.Plan {
	var p desired.Plan
	tainted := in.Root.DeepCopy()
	taints := &tainted.Spec.Taints
	at := slices.IndexFunc(*taints, func(t corev1.Taint) bool { return t.Key == api.NoRoomTaintKey })
	waiting := false
	for i := range in.Pods {
		pod := &in.Pods[i]
		if pod.Spec.NodeName != in.Root.Name || NoRoom(pod) == "" {
			continue
		}
		waiting = true
		if !replaceable(pod) || !api.NodeReady(in.Root) {
			continue
		}
		left := roomTime
		if at >= 0 && (*taints)[at].TimeAdded != nil && !pod.CreationTimestamp.Before((*taints)[at].TimeAdded) {
			left = roomTimeAgain
		}
		if left -= in.waited(pod); left > 0 {
			requeueWithin(&p, left)
			continue
		}
		// Last: others come at once, and are to find the taint.
		p.Actions = append(p.Actions, desired.Action{Verb: desired.Delete, Object: pod, Last: true,
			Event: desired.Event{
				Type: corev1.EventTypeWarning, Reason: "ProviderHasNoRoom",
				// an event holds 1 kB
				Message: fmt.Sprintf("deleted, so that its controller makes one that may run elsewhere; the provider "+
					"says: %.500s", NoRoom(pod)),
			}})
	}
	switch {
	case at < 0 && len(p.Actions) > 0:
		*taints = append(*taints, corev1.Taint{
			Key: api.NoRoomTaintKey, Effect: corev1.TaintEffectPreferNoSchedule,
			TimeAdded: new(metav1.NewTime(in.Now).Rfc3339Copy()),
		})
		requeueWithin(&p, noRoomTime)
	case at >= 0 && !waiting:
		left := time.Duration(0)
		if added := (*taints)[at].TimeAdded; added != nil {
			left = noRoomTime - in.Now.Sub(added.Time)
		}
		if left > 0 {
			requeueWithin(&p, left)
		} else {
			*taints = slices.Delete(*taints, at, at+1)
		}
	}
	if !equality.Semantic.DeepEqual(tainted.Spec.Taints, in.Root.Spec.Taints) {
		p.Actions = append(p.Actions, desired.Action{Verb: desired.Merge, Locked: true, Before: in.Root,
			Object: tainted})
	}
	return p
}

// requeueWithin requeues the root after a time, or earlier if the plan says so.
func requeueWithin(p *desired.Plan, after time.Duration) {
	if p.RequeueAfter == 0 || after < p.RequeueAfter {
		p.RequeueAfter = after
	}
}

// waited is how long the pod has had no place. The provider's clock may differ from ours, so it is
// not longer than the pod exists, and what is still to come by it counts as nothing.
func (in UnplacedInput) waited(pod *corev1.Pod) time.Duration {
	since := pod.CreationTimestamp.Time
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.LastTransitionTime.After(since) && !c.LastTransitionTime.After(in.Now) {
			since = c.LastTransitionTime.Time
		}
	}
	return in.Now.Sub(since)
}

// NoRoom is what the provider's scheduler says of a pod it cannot place; empty is nothing.
func NoRoom(pod *corev1.Pod) string {
	if pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodPending {
		return ""
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
			c.Reason == corev1.PodReasonUnschedulable {
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

// replaceable reports whether the pod's controller makes another as good. A DaemonSet's would come
// back to the same node, and a Job counts a deleted pod as a failure.
func replaceable(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind != "DaemonSet" && owner.Kind != "Job"
}
