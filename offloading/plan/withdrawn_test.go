// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/offloading/plan"
)

// TestPodGoesWithItsShadowPod shows which pods are deleted after the deletion of a ShadowPod of their name.
func TestPodGoesWithItsShadowPod(t *testing.T) {
	owned := func(kind string, uid types.UID) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, UID: uid, Controller: new(true)}}
	}
	for _, c := range []struct {
		claim   string
		owners  []metav1.OwnerReference
		by      string
		there   types.UID // of the ShadowPod that exists; "" = none
		deleted bool
	}{
		{"its ShadowPod is gone", owned("ShadowPod", "s"), api.ManagedByShadowPod, "", true},
		{"another has the name", owned("ShadowPod", "s"), api.ManagedByShadowPod, "t", true},
		{"its ShadowPod exists", owned("ShadowPod", "s"), api.ManagedByShadowPod, "s", false},
		{"it belongs to nobody", nil, api.ManagedByShadowPod, "", false},
		{"it belongs to another controller", owned("ReplicaSet", "s"), api.ManagedByShadowPod, "", false},
		{"a user made it", owned("ShadowPod", "s"), "", "", false},
	} {
		in := plan.WithdrawnInput{Root: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "web", OwnerReferences: c.owners, Labels: map[string]string{api.LabelManagedBy: c.by},
		}}}
		if c.there != "" {
			in.ShadowPod = &offloadingv1beta1.ShadowPod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: c.there}}
		}
		if got := len(plan.Withdrawn(in).Actions) > 0; got != c.deleted {
			t.Errorf("a pod of which %s: deleted is %v", c.claim, got)
		}
	}
}
