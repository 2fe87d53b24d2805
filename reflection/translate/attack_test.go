// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/reflection/translate"
)

// TestAttackPodAddresses: a provider says that a remote pod has a loopback or link-local address, or one outside of the
// provider's ranges where they are known, so that Services of the consumer lead there.
//
// Outcome: the home pod does not show the address, so no Service leads to it.
func TestAttackPodAddresses(t *testing.T) {
	t.Parallel()
	networked := translate.View{Networked: true, PeerPods: []translate.Remap{{From: netip.MustParsePrefix("10.20.0.0/16"), To: netip.MustParsePrefix("10.21.0.0/16")}}}
	for _, c := range []struct {
		view translate.View
		ip   string
		want []corev1.PodIP
	}{
		{translate.View{}, "10.20.0.7", []corev1.PodIP{{IP: "10.20.0.7"}}},
		{networked, "10.20.0.7", []corev1.PodIP{{IP: "10.21.0.7"}}},
		{networked, "10.96.0.1", nil},
		{translate.View{}, "127.0.0.1", nil},
		{translate.View{}, "::1", nil},
		{translate.View{}, "169.254.169.254", nil},
		{translate.View{}, "::ffff:169.254.169.254", nil},
		{translate.View{}, "fe80::1", nil},
		{translate.View{}, "0.0.0.0", nil},
		{translate.View{Networked: true}, "10.20.0.7", nil},
	} {
		c.view.Namespaces = map[string]string{"shop": "shop-rome"}
		home, remote := &corev1.Pod{}, &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: c.ip, PodIPs: []corev1.PodIP{{IP: c.ip}}}}
		home.Namespace = "shop"
		out := translate.PodStatus(home, &offv1beta1.ShadowPod{}, remote, c.view)
		if out == nil {
			t.Fatalf("%s: no status", c.ip)
		}
		if diff := cmp.Diff(c.want, out.Status.PodIPs); diff != "" {
			t.Errorf("%s, networked %v (-want +got):\n%s", c.ip, c.view.Networked, diff)
		}
	}
}
