// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

const (
	// FieldsReflected on a pod is false if the pod sets fields that the remote pod lacks, because this
	// Liqo or the API server of the provider does not know them. There is no such condition otherwise.
	FieldsReflected corev1.PodConditionType = "offloading.liqo.io/FieldsReflected"
	// reasonUnknownFields: upgrade what the message names, or make the pod without these fields.
	reasonUnknownFields = "UnknownFields"
	// ReasonUnknownVolume: the pod is not created at the provider, because this Liqo does not know a
	// kind of its volumes. Upgrade Liqo, or make the pod without that volume.
	ReasonUnknownVolume = "UnknownVolume"
)

// UnknownVolume returns the first field of a pod's volumes that is lost and may be the source of a
// volume or of a projection; empty = none.
func UnknownVolume(v View) string {
	i := slices.IndexFunc(v.Lost, api.IsVolumeSource)
	if i < 0 {
		return ""
	}
	return v.Lost[i]
}

// Dropped returns the fields that the API server of the provider does not know, as the provider reports
// them in the status of a ShadowPod; at most mostDropped.
func Dropped(remote any) []string {
	shadow, ok := remote.(*offv1beta1.ShadowPod)
	if !ok || shadow == nil {
		return nil
	}
	ready := meta.FindStatusCondition(shadow.Status.Conditions, desired.ConditionReady)
	if ready == nil || ready.Reason != api.ReasonFieldsDropped {
		return nil
	}
	return fieldPath.FindAllString(ready.Message, mostDropped)
}

const mostDropped = 16

var fieldPath = regexp.MustCompile(`\bspec(\.[A-Za-z]\w{0,62}){1,12}`)

// withLost returns the conditions of a pod with FieldsReflected set or removed. While it is not known
// which fields are lost, the condition stays.
func withLost(pod *corev1.Pod, shadow *offv1beta1.ShadowPod, v View) []corev1.PodCondition {
	all := pod.Status.Conditions
	was := condition(all, FieldsReflected)
	unknown := v.Namespaces[pod.Namespace] == "" || pod.DeletionTimestamp != nil || v.RefusalUnknown
	dropped := Dropped(shadow)
	if unknown || was == nil && len(v.Lost)+len(dropped) == 0 {
		return all
	}
	all = slices.DeleteFunc(slices.Clone(all), func(c corev1.PodCondition) bool { return c.Type == FieldsReflected })
	if len(v.Lost)+len(dropped) == 0 {
		return all
	}
	now := corev1.PodCondition{
		Type: FieldsReflected, Status: corev1.ConditionFalse, LastTransitionTime: pod.CreationTimestamp,
		Reason: reasonUnknownFields,
	}
	var causes []string
	if len(v.Lost) > 0 {
		causes = append(causes, fmt.Sprintf("this version of Liqo does not know %s, so %s does not get it; upgrade "+
			"Liqo, or make the pod without it", strings.Join(v.Lost, ", "), v.Provider))
	}
	if len(dropped) > 0 {
		causes = append(causes, fmt.Sprintf("the API server of %s does not know %s; have its Kubernetes upgraded, or "+
			"make the pod without it", v.Provider, strings.Join(dropped, ", ")))
	}
	if volume := UnknownVolume(v); volume != "" && shadow == nil {
		now.Reason = ReasonUnknownVolume
		causes = []string{fmt.Sprintf("this version of Liqo does not know %s, so the pod is not created at %s; "+
			"upgrade Liqo, or make the pod without it", volume, v.Provider)}
	}
	now.Message = strings.Join(causes, "; ")
	return append(all, now)
}
