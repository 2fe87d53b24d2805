// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/reflection/translate"
)

// TestUnknownVolume: a source is a field of a volume itself, or of a projection itself.
func TestUnknownVolume(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]bool{
		"spec.volumes.newer":                                       true,
		"spec.volumes.projected.sources.newer":                     true,
		"spec.volumes.projected.newer":                             false,
		"spec.volumes.projected.sources.serviceAccountToken.newer": false,
		"spec.volumes.ephemeral.volumeClaimTemplate.spec.newer":    false,
		"spec.containers.newer":                                    false,
		"spec.newer":                                               false,
	} {
		if got := translate.UnknownVolume(translate.View{Lost: []string{"spec.a", field}}); (got == field) != want {
			t.Errorf("%s is the source of a volume: %t, want %t", field, got == field, want)
		}
	}
}

// TestLeftOut: what the provider says of keys that the pod has is reported, and nothing else that it says.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	home := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Labels:      map[string]string{"k8s.ovn.org/a": "1", "app": "web"},
		Annotations: map[string]string{"vault.hashicorp.com/role": "shop", "k8s.ovn.org/a": "1"},
	}}
	said := func(reason, message string) *offv1beta1.ShadowPod {
		return &offv1beta1.ShadowPod{Status: offv1beta1.ShadowPodStatus{Conditions: []metav1.Condition{
			{Type: desired.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message},
		}}}
	}
	const message = "no metadata.annotations[vault.hashicorp.com/role], metadata.labels[k8s.ovn.org/a], metadata.labels[evil], app"
	want := []string{"metadata.annotations[vault.hashicorp.com/role]", "metadata.labels[k8s.ovn.org/a]"}
	for _, reason := range []string{api.ReasonMetadataLeftOut, api.ReasonFieldsDropped} {
		if got := translate.LeftOut(home, said(reason, message)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", reason, got, want)
		}
	}
	if got := translate.LeftOut(home, said("PodForbidden", message)); got != nil {
		t.Errorf("of another reason: %v", got)
	}
}
