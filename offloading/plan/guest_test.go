// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/offloading/plan"
)

// TestRefusedFieldsAndVolumes checks which fields and volumes of a ShadowPod need the provider's
// permission. A field with the default of the API server needs none.
func TestRefusedFieldsAndVolumes(t *testing.T) {
	t.Parallel()
	projected := func(source corev1.VolumeProjection) corev1.VolumeSource {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{}}, source,
		}}}
	}
	volume := func(source corev1.VolumeSource) corev1.PodSpec {
		scratch := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "a", VolumeSource: scratch}, {Name: "b", VolumeSource: source}}}
	}
	for refused, spec := range map[string]corev1.PodSpec{
		"": {
			Priority: new(int32(0)), SchedulerName: "default-scheduler",
			PreemptionPolicy: new(corev1.PreemptLowerPriority),
		},
		"priority is":         {Priority: new(int32(1))},
		"schedulerName is":    {SchedulerName: "other"},
		"preemptionPolicy is": {PreemptionPolicy: new(corev1.PreemptNever)},
		"kind hostPath is":    volume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}),
		"kind projected.podCertificate is": volume(projected(
			corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{}})),
	} {
		pod := &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{api.LabelOrigin: "rome"}}}
		pod.Spec.Pod = spec
		got := plan.ShadowPodRefusal(pod, "rome", plan.GuestPods{})
		if !strings.Contains(got, refused) || (got == "") != (refused == "") {
			t.Errorf("got refusal %q, want one of %q", got, refused)
		}
	}
}
