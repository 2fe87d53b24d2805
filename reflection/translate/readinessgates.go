// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// reasonGates is set while a readiness gate is not true; a controller of this cluster has to set
// it.
const reasonGates = "ReadinessGatesNotReady"

// gated makes a pod that is ready at the provider wait for its readiness gates. Controllers of the
// home cluster set these conditions on the home pod, so they are not pushed, and are evaluated
// here. The pod has been ready since the last gate was.
func gated(gates []corev1.PodReadinessGate, conditions []corev1.PodCondition) []corev1.PodCondition {
	ready := condition(conditions, corev1.PodReady)
	if ready == nil || ready.Status != corev1.ConditionTrue {
		return conditions
	}
	for _, gate := range gates {
		c := condition(conditions, gate.ConditionType)
		if c == nil || c.Status != corev1.ConditionTrue {
			ready.Status, ready.Reason = corev1.ConditionFalse, reasonGates
			ready.Message = fmt.Sprintf("readiness gate %q is not true; a controller of this cluster sets it",
				gate.ConditionType)
			return conditions
		}
		if ready.LastTransitionTime.Before(&c.LastTransitionTime) {
			ready.LastTransitionTime = c.LastTransitionTime
		}
	}
	return conditions
}
