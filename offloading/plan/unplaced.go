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
	// roomTime is how long a pod may be unschedulable at the provider before it is replaced: longer
	// than the restart of a node, shorter than a user waits.
	roomTime = 30 * time.Second
	// roomTimeAgain is the same for a pod that was scheduled in spite of the taint, so that no
	// other node was better. Meanwhile there may be room elsewhere.
	roomTimeAgain = 10 * time.Minute
	// noRoomTime is the minimum lifetime of the taint.
	noRoomTime = 5 * time.Minute
)

// UnplacedInput holds the Node of a virtual node, and pods that have not started. Pods of other
// nodes are ignored.
type UnplacedInput struct {
	Root *corev1.Node
	Pods []corev1.Pod
	// Replacing lists further kinds of controllers that replace deleted pods.
	Replacing Replacing
	Now       time.Time
}

// Unplaced deletes the pods of a virtual node for which its provider has no room, if their controllers
// replace them. The local scheduler places the new ones. It does not know the provider's nodes, so a
// taint makes it prefer any other node. Other pods wait: nobody would create another, or a Job would
// count the deleted one as failed.
//
//	               30 s               10 min             no pod waits
//	├ pod pending ──┼ taint, deleted
//	                    ├ pod in spite ┼ deleted
//	                ├ taint ── at least 5 min ─────────── ┤
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
		if !in.Replacing.replaces(pod) || !api.NodeReady(in.Root) {
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
		// Last, because the new pods are created at once and must find the taint.
		p.Actions = append(p.Actions, desired.Action{Verb: desired.Delete, Object: pod, Last: true,
			Event: desired.Event{
				Type: corev1.EventTypeWarning, Reason: "ProviderHasNoRoom",
				// the message of an event has at most 1 kB
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

// waited returns how long the pod has been unschedulable. The provider's clock may differ, so the
// result is at most the age of the pod, and transitions in the future are ignored.
func (in UnplacedInput) waited(pod *corev1.Pod) time.Duration {
	since := pod.CreationTimestamp.Time
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.LastTransitionTime.After(since) && !c.LastTransitionTime.After(in.Now) {
			since = c.LastTransitionTime.Time
		}
	}
	return in.Now.Sub(since)
}

// NoRoom returns why the provider's scheduler cannot place a pod; empty if it can or has not tried.
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
