// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/reflection/translate"
)

// TestAttackPodAddresses: a provider reports that a remote pod has a loopback or link-local
// address, or one outside of the provider's ranges. Without a network between the clusters its
// ranges are not known, and it reports an address that Nodes, EndpointSlices or Networks of the
// consumer name as one of its API server, nodes or Services. Services of the consumer would route
// its pods' traffic there.
//
// Outcome: the home pod does not show the address, so no Service routes to it. Without a network,
// an address of another pod of the consumer is shown: the clusters may share a pod network.
func TestAttackPodAddresses(t *testing.T) {
	t.Parallel()
	networked := translate.View{Networked: true, PeerPods: netv1beta1.Mappings{{
		Remote: netip.MustParsePrefix("10.20.0.0/16"), Local: netip.MustParsePrefix("10.21.0.0/16"),
	}}}
	flat := translate.View{}
	for _, own := range []string{"10.96.0.0/12", "192.0.2.1/32", "2001:db8::1/128"} {
		flat.Own = append(flat.Own, netip.MustParsePrefix(own))
	}
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
		{flat, "10.20.0.7", []corev1.PodIP{{IP: "10.20.0.7"}}},
		{flat, "192.0.2.2", []corev1.PodIP{{IP: "192.0.2.2"}}},
		{flat, "10.96.0.1", nil},
		{flat, "192.0.2.1", nil},
		{flat, "::ffff:192.0.2.1", nil},
		{flat, "2001:db8::1", nil},
		{flat, "2001:db8::1%eth0", nil},
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

// TestAttackAmountsInStatus: a provider reports amounts of a running container, of a pod and of a volume that nobody can
// compare within a lifetime. kube-scheduler compares those of pods, and kubelets those of claims.
//
// Outcome: they are left out. Other amounts are shown.
func TestAttackAmountsInStatus(t *testing.T) {
	for _, amount := range []string{"1e2147483646", "0e2147483646", "-1e400000", "1e30"} {
		amounts := func() corev1.ResourceList {
			return corev1.ResourceList{"cpu": resource.MustParse(amount), "memory": resource.MustParse("1Gi")}
		}
		both := func() *corev1.ResourceRequirements {
			return &corev1.ResourceRequirements{Requests: amounts(), Limits: amounts()}
		}
		home := webPod()
		in := corev1.PodStatus{Resources: both(), AllocatedResources: amounts(), ContainerStatuses: []corev1.ContainerStatus{
			{Name: home.Spec.Containers[0].Name, Resources: both(), AllocatedResources: amounts()}}}
		out := pulledFrom(home, in).Status
		c := out.ContainerStatuses[0]
		for field, got := range map[string]corev1.ResourceList{
			"requests": c.Resources.Requests, "limits": c.Resources.Limits, "allocated": c.AllocatedResources,
			"requests of the pod": out.Resources.Requests, "limits of the pod": out.Resources.Limits, "allocated of the pod": out.AllocatedResources,
		} {
			if _, has := got["cpu"]; has || got.Memory().String() != "1Gi" {
				t.Errorf("%s as %s: %d amounts", amount, field, len(got))
			}
		}
		claim := func(amount string) *corev1.PersistentVolumeClaim {
			return &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Finalizers: []string{api.ClaimFinalizer("milan")}},
				Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound,
					Capacity: corev1.ResourceList{"storage": resource.MustParse(amount)}},
			}
		}
		if got := translate.ClaimStatus(claim("1Gi"), claim(amount), translate.View{Provider: "milan"}); got.Status.Capacity.Storage().String() != "1Gi" {
			t.Errorf("%s as the size of a volume is shown", amount)
		}
	}
}
