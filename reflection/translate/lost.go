// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	// FieldsReflected on a pod is false if the pod sets fields that do not reach the provider, because
	// this Liqo does not know them. There is no such condition otherwise.
	FieldsReflected corev1.PodConditionType = "offloading.liqo.io/FieldsReflected"
	// reasonUnknownFields: upgrade Liqo, or make the pod without these fields.
	reasonUnknownFields = "UnknownFields"
	// ReasonUnknownVolume: the pod is not created at the provider, because this Liqo does not know a
	// kind of its volumes. Upgrade Liqo, or make the pod without that volume.
	ReasonUnknownVolume = "UnknownVolume"
)

// UnknownVolume returns the first field of a pod's volumes that is lost and may be the source of a
// volume or of a projection; empty = none.
func UnknownVolume(v View) string {
	i := slices.IndexFunc(v.Lost, func(path string) bool {
		source, ok := strings.CutPrefix(path, "spec.volumes.")
		return ok && !strings.Contains(strings.TrimPrefix(source, "projected.sources."), ".")
	})
	if i < 0 {
		return ""
	}
	return v.Lost[i]
}

// withLost returns the conditions of a pod with FieldsReflected set or removed. While it is not known
// which fields are lost, the condition stays.
func withLost(pod *corev1.Pod, v View) []corev1.PodCondition {
	all := pod.Status.Conditions
	was := condition(all, FieldsReflected)
	unknown := v.Namespaces[pod.Namespace] == "" || pod.DeletionTimestamp != nil || v.RefusalUnknown
	if unknown || was == nil && len(v.Lost) == 0 {
		return all
	}
	all = slices.DeleteFunc(slices.Clone(all), func(c corev1.PodCondition) bool { return c.Type == FieldsReflected })
	if len(v.Lost) == 0 {
		return all
	}
	now := corev1.PodCondition{
		Type: FieldsReflected, Status: corev1.ConditionFalse, LastTransitionTime: pod.CreationTimestamp,
		Reason: reasonUnknownFields,
		Message: fmt.Sprintf("this version of Liqo does not know %s, so %s does not get it; upgrade Liqo, or make the "+
			"pod without it", strings.Join(v.Lost, ", "), v.Provider),
	}
	if volume := UnknownVolume(v); volume != "" {
		now.Reason = ReasonUnknownVolume
		now.Message = fmt.Sprintf("this version of Liqo does not know %s, so the pod is not created at %s; upgrade "+
			"Liqo, or make the pod without it", volume, v.Provider)
	}
	return append(all, now)
}
