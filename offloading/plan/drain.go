// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqo-go/liqo/internal/desired"
)

// evictInterval is the time between two attempts to evict pods that disruption budgets protect.
const evictInterval = 5 * time.Second

// Drain evicts the pods of a node. It is repeated until no pod is left.
func Drain(pods []corev1.Pod) desired.Plan {
	var p desired.Plan
	for _, pod := range Draining(pods) {
		p.RequeueAfter = evictInterval
		if pod.GetDeletionTimestamp() == nil {
			p.Actions = append(p.Actions, desired.Action{Verb: desired.Evict, Object: pod})
		}
	}
	return p
}
