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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

const (
	// FieldsReflected on a pod is false if the pod sets fields that the remote pod lacks, because this
	// Liqo or the API server of the provider does not know them, or labels or annotations that the provider
	// does not grant. There is no such condition otherwise.
	FieldsReflected corev1.PodConditionType = "offloading.liqo.io/FieldsReflected"
	// reasonUnknownFields: upgrade what the message names, or make the pod without these fields.
	reasonUnknownFields = "UnknownFields"
	// reasonMetadataLeftOut: the provider does not grant labels or annotations. The message names them, and
	// who can change that.
	reasonMetadataLeftOut = api.ReasonMetadataLeftOut
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

// LeftOut returns the labels and annotations of a home pod that the remote pod does not get, as the provider
// reports them in the status of a ShadowPod, sorted.
func LeftOut(home metav1.Object, remote any) []string {
	shadow, ok := remote.(*offv1beta1.ShadowPod)
	if !ok || shadow == nil {
		return nil
	}
	ready := meta.FindStatusCondition(shadow.Status.Conditions, desired.ConditionReady)
	if ready == nil || ready.Reason != api.ReasonMetadataLeftOut && ready.Reason != api.ReasonFieldsDropped {
		return nil
	}
	var out []string
	add := func(path string) {
		if strings.Contains(ready.Message, path) {
			out = append(out, path)
		}
	}
	for key := range home.GetLabels() {
		add(api.LabelPath(key))
	}
	for key := range home.GetAnnotations() {
		add(api.AnnotationPath(key))
	}
	slices.Sort(out)
	return out
}

// LeftOutCause completes "… is not reflected:" for what LeftOut returns.
const LeftOutCause = "pods of consumers may not have it there, and no Service there finds them by it; have the " +
	"provider add what it begins with to its value offloading.guestPods.annotations, or leave it out yourself: " +
	"value offloading.reflection.skip, or annotationsNotReflected and labelsNotReflected of the " +
	"VirtualNode's offloadingPatch"

var fieldPath = regexp.MustCompile(`\bspec(\.[A-Za-z]\w{0,62}){1,12}`)

// withLost returns the conditions of a pod with FieldsReflected set or removed. While it is not known
// which fields are lost, the condition stays.
func withLost(pod *corev1.Pod, shadow *offv1beta1.ShadowPod, v View) []corev1.PodCondition {
	all := pod.Status.Conditions
	was := condition(all, FieldsReflected)
	unknown := v.Namespaces[pod.Namespace] == "" || pod.DeletionTimestamp != nil || v.RefusalUnknown
	dropped, leftOut := Dropped(shadow), LeftOut(pod, shadow)
	lost := len(v.Lost)+len(dropped) > 0
	if unknown || was == nil && !lost && len(leftOut) == 0 {
		return all
	}
	all = slices.DeleteFunc(slices.Clone(all), func(c corev1.PodCondition) bool { return c.Type == FieldsReflected })
	if !lost && len(leftOut) == 0 {
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
	if len(leftOut) > 0 {
		causes = append(causes, fmt.Sprintf("%s: %s", strings.Join(leftOut, ", "), LeftOutCause))
	}
	if !lost {
		now.Reason = reasonMetadataLeftOut
	}
	if volume := UnknownVolume(v); volume != "" && shadow == nil {
		now.Reason = ReasonUnknownVolume
		causes = []string{fmt.Sprintf("this version of Liqo does not know %s, so the pod is not created at %s; "+
			"upgrade Liqo, or make the pod without it", volume, v.Provider)}
	}
	now.Message = strings.Join(causes, "; ")
	return append(all, now)
}
