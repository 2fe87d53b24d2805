// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/desired"
)

// Conditioned is a kind with a standard condition list in its status.
type Conditioned interface {
	GetConditions() *[]metav1.Condition
}

// partlyConditioned is a kind whose conditions have a type of their own, with the fields of
// metav1.Condition.
type partlyConditioned interface {
	// HasStandardConditions reports whether the schema of the object's conditions takes standard
	// ones.
	HasStandardConditions() bool
}

// metav1TimeFormat is the format in which the API stores times, in whole seconds.
const metav1TimeFormat = time.RFC3339

// conditions returns a verdict as the conditions that kubectl wait and GitOps tools read. A
// condition whose status does not change keeps its transition time.
func conditions(before []metav1.Condition, v desired.Verdict, generation int64) []metav1.Condition {
	reason, message := v.Reason, v.Message
	if reason == "" {
		reason = "Ready"
	}
	status := metav1.ConditionTrue
	if v.State != desired.Ready {
		status = metav1.ConditionFalse
	}
	list := []metav1.Condition{{Type: desired.ConditionReady, Status: status}}
	switch v.State {
	case desired.Waiting:
		list = append(list, metav1.Condition{Type: desired.ConditionReconciling, Status: metav1.ConditionTrue})
	case desired.Blocked:
		list = append(list, metav1.Condition{Type: desired.ConditionStalled, Status: metav1.ConditionTrue})
	}
	for i := range list {
		c := &list[i]
		c.Reason, c.Message, c.ObservedGeneration = reason, message, generation
		c.LastTransitionTime = metav1.Now()
		if old := meta.FindStatusCondition(before, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
	return list
}

// report writes the verdict into the root's conditions, and an event when the root becomes blocked
// or recovers. If the root has no conditions, an event also reports that it waits.
func (l *loop) report(ctx context.Context, root client.Object, plan desired.Plan, failure error) error {
	v := l.verdictAfter(client.ObjectKeyFromObject(root), plan.Reported(), failure)
	before, conditioned := l.conditionsOf(root)
	last := l.replaceVerdict(client.ObjectKeyFromObject(root), v, failure)
	switch {
	case last == v:
	case v.State == desired.Blocked:
		l.record(root, nil, corev1.EventTypeWarning, v.Reason, v.Message)
	case v.State == desired.Ready && last.State == desired.Blocked:
		l.record(root, nil, corev1.EventTypeNormal, "Ready", "resolved: "+last.Reason)
	case v.State == desired.Waiting && failure == nil && !conditioned && !l.Quiet:
		l.record(root, nil, corev1.EventTypeNormal, v.Reason, v.Message)
	}
	if l.Quiet || !conditioned || root.GetDeletionTimestamp() != nil && v.State == desired.Ready {
		return nil
	}
	fine := v.State == desired.Ready || v.State == desired.Waiting && failure != nil
	if fine && len(before) == 0 && plan.ProblemsOnly {
		return nil
	}
	content, err := statusOnly(root, conditions(before, v, root.GetGeneration()))
	if err != nil {
		return err
	}
	content.SetGroupVersionKind(l.kind(root))
	_, err = l.conditions.Status(ctx, root, content)
	return ignoreGone(root, err)
}

// replaceVerdict stores the verdict on a root, and returns the former one. A failed write does not
// end a block.
func (l *loop) replaceVerdict(key types.NamespacedName, v desired.Verdict, failure error) desired.Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.verdicts[key]
	switch {
	case v.State == desired.Waiting && failure != nil && last.State == desired.Blocked:
	case v == desired.Verdict{}:
		delete(l.verdicts, key)
	default:
		l.verdicts[key] = v
	}
	return last
}

// verdictAfter returns the verdict on a plan after its writes; failure is their error, nil if all
// succeeded.
func (l *loop) verdictAfter(key types.NamespacedName, v desired.Verdict, failure error) desired.Verdict {
	var foreign errForeign
	switch {
	case errors.As(failure, &foreign):
		v = desired.Verdict{State: desired.Blocked, Reason: foreign.kind + "Exists", Message: foreign.Error()}
	case l.refusedFor(key, failure) > refusalReported:
		v = desired.Verdict{State: desired.Blocked, Reason: "ApplyRefused", Message: Steady(failure)}
	case failure != nil && !apierrors.IsConflict(failure):
		v = desired.Verdict{State: desired.Waiting, Reason: "ApplyFailed", Message: Steady(failure)}
	}
	v.Message = api.Printable(v.Message) // a peer's condition or an error of its API server may be in it
	return v
}

// conditionsOf returns the conditions of a root, and whether standard ones may be among them.
func (l *loop) conditionsOf(root client.Object) (conditions []metav1.Condition, conditioned bool) {
	if conditioned, ok := any(root).(Conditioned); ok {
		return *conditioned.GetConditions(), true
	}
	if of, ok := any(root).(partlyConditioned); !ok || !of.HasStandardConditions() {
		return nil, false
	}
	var as struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(root)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &as)
	}
	return as.Status.Conditions, err == nil
}

// statusOnly returns an object with the identity of obj and these conditions, so that applying it
// owns no other field.
func statusOnly(obj client.Object, list []metav1.Condition) (*unstructured.Unstructured, error) {
	items := make([]any, len(list))
	for i, c := range list {
		items[i] = map[string]any{
			"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message,
			"observedGeneration": c.ObservedGeneration,
			"lastTransitionTime": c.LastTransitionTime.UTC().Format(metav1TimeFormat),
		}
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetName(obj.GetName())
	u.SetNamespace(obj.GetNamespace())
	return u, unstructured.SetNestedSlice(u.Object, items, "status", "conditions")
}
