// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/internal/desired"
)

// Conditioned is a kind with a standard condition list in its status.
type Conditioned interface {
	GetConditions() *[]metav1.Condition
}

// metav1TimeFormat is the whole-second form in which the API stores times.
const metav1TimeFormat = time.RFC3339

// conditions tells a verdict in the words kubectl wait and GitOps tools understand. Times of
// conditions that keep their status are kept.
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
