// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"net/netip"
	"testing"
	"testing/quick"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	networkingv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/seed"
	"github.com/liqo-go/liqo/offloading/plan"
)

// seen returns the address of an endpoint after a network was remapped to another; empty if it is
// left out.
func seen(address, from, to string) string {
	root := &offloadingv1beta1.ShadowEndpointSlice{}
	root.Spec.Template.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{address}}}
	c := networkingv1beta1.Configuration{}
	c.Spec.Remote = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: []string{from}}}
	c.Status.Remote = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: []string{to}}}
	p := plan.ShadowEndpointSlice(plan.ShadowEndpointSliceInput{
		Root: root, Origin: "milan", Configurations: map[string]networkingv1beta1.Configuration{"milan": c},
	})
	slice := p.Objects[0].(*discoveryv1.EndpointSlice)
	if len(slice.Endpoints) == 0 {
		return ""
	}
	return slice.Endpoints[0].Addresses[0]
}

// TestAddressesComeBack remaps addresses to another network and back, in both families and for
// every length of prefix. The result is the same address, and the remapped address is in the other
// network.
func TestAddressesComeBack(t *testing.T) {
	comesBack := func(host, other [16]byte, length uint8, six bool) bool {
		a, b := netip.AddrFrom16(host), netip.AddrFrom16(other)
		if !six {
			a, b = netip.AddrFrom4([4]byte(host[:4])), netip.AddrFrom4([4]byte(other[:4]))
		}
		if a.Is4In6() || b.Is4In6() {
			return true
		}
		bits := int(length) % (a.BitLen() + 1)
		from, to := netip.PrefixFrom(a, bits).Masked(), netip.PrefixFrom(b, bits).Masked()
		there := seen(a.String(), from.String(), to.String())
		address, err := netip.ParseAddr(there)
		return err == nil && to.Contains(address) && seen(there, to.String(), from.String()) == a.String()
	}
	if err := quick.Check(comesBack, seed.Quick(t)); err != nil {
		t.Error(err)
	}
}

// TestQuotaIsNeverExceeded requests any number of pods. Those that are admitted fit together, with
// requests as the API server completes them: of the containers, from limits, or as a whole. No
// request is negative.
func TestQuotaIsNeverExceeded(t *testing.T) {
	milli := func(n int) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(n), resource.DecimalSI)}
	}
	fits := func(limit uint16, requests []int16) bool {
		quota := offloadingv1beta1.QuotaSpec{Resources: milli(int(limit))}
		used, asked := corev1.ResourceList{}, int64(0)
		for i, request := range requests {
			r := int(request)
			pod := corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: milli(r)}}}}
			switch i % 3 {
			case 1:
				pod.Containers[0].Resources = corev1.ResourceRequirements{Limits: milli(r)}
			case 2:
				pod.Containers[0].Resources.Requests = milli(r / 2)
				pod.Resources = &corev1.ResourceRequirements{Requests: milli(r)}
			}
			if plan.Refusal(&plan.QuotaInput{Quota: &quota, Used: used, Pod: pod}) == "" {
				plan.Add(used, plan.Demand(&pod))
				asked += int64(r)
			}
		}
		return asked <= int64(limit) && used.Cpu().MilliValue() == asked
	}
	if err := quick.Check(fits, seed.Quick(t)); err != nil {
		t.Error(err)
	}
}
