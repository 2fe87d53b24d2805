// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/liqo-go/liqo/api"
	networkingv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/offloading/plan"
)

// led are the addresses of the slice that a consumer's addresses become, with the reason beside them.
func led(in plan.ShadowEndpointSliceInput, annotation string, addresses ...string) (out []string, reason string) {
	in.Root, in.Origin = &offloadingv1beta1.ShadowEndpointSlice{}, "milan"
	in.Own = []netip.Prefix{netip.MustParsePrefix("192.0.2.10/32"), netip.MustParsePrefix("2001:db8::10/128"), netip.MustParsePrefix("10.96.0.0/12")}
	if annotation != "" {
		in.Root.Annotations = map[string]string{api.AnnotationDirectConnectionsData: annotation}
	}
	for _, address := range addresses {
		in.Root.Spec.Template.Endpoints = append(in.Root.Spec.Template.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
	}
	p := plan.ShadowEndpointSlice(in)
	for _, object := range p.Objects {
		for _, endpoint := range object.(*discoveryv1.EndpointSlice).Endpoints {
			out = append(out, endpoint.Addresses...)
		}
	}
	if p.State != desired.Ready {
		return out, p.Reason
	}
	return out, p.Degraded.Reason
}

// configuration is how the pods of a peer are seen from here.
func configuration(pods, seenAs string) networkingv1beta1.Configuration {
	c := networkingv1beta1.Configuration{}
	c.Spec.Remote = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: []string{pods}}}
	c.Status.Remote = &networkingv1beta1.ClusterConfig{CIDR: networkingv1beta1.ClusterCIDR{Pod: []string{seenAs}}}
	return c
}

// TestAttackEndpointsOfTheProviderItself: a consumer without a network to the provider names addresses of the
// provider's nodes, Services, loopback or link-local interfaces as endpoints of a Service, to be led there.
//
// Outcome: these endpoints are left out, and the condition of the ShadowEndpointSlice names the address. Others, which
// another network may lead to the consumer's pods, stay.
func TestAttackEndpointsOfTheProviderItself(t *testing.T) {
	t.Parallel()
	for _, own := range []string{
		"192.0.2.10", "2001:db8::10", "::ffff:192.0.2.10", "10.96.0.1", "127.0.0.1", "::1", "169.254.169.254", "fe80::1", "fe80::1%eth0", "0.0.0.0", "::",
		"224.0.0.1", "255.255.255.255",
	} {
		got, reason := led(plan.ShadowEndpointSliceInput{}, "", "192.0.2.11", own)
		if diff := cmp.Diff([]string{"192.0.2.11"}, got); diff != "" || reason != "AddressRefused" {
			t.Errorf("%s: reason %q, addresses (-want +got):\n%s", own, reason, diff)
		}
	}
}

// TestAttackEndpointsOfOtherPods: a consumer names pods of the provider or of another consumer as endpoints of a
// Service, in the list that is for its own pods there, so that an Ingress leads to them.
//
// Outcome: an endpoint is left out unless all of its addresses are of pods that run there for the consumer, and the
// condition of the ShadowEndpointSlice names the address. It is left out again when its pod has gone.
func TestAttackEndpointsOfOtherPods(t *testing.T) {
	t.Parallel()
	root := &offloadingv1beta1.ShadowEndpointSlice{}
	for list, want := range map[string][]string{
		`[{"addresses": ["10.10.0.7"]}]`:                                                {"10.10.0.7"},
		`[{"addresses": ["10.10.0.8"]}]`:                                                nil,
		`[{"addresses": ["10.10.0.7", "10.10.0.8"]}]`:                                   nil,
		`[{"addresses": ["192.0.2.10"]}, {"addresses": ["node-1"]}]`:                    nil,
		`[{"addresses": []}, {"addresses": ["10.10.0.7"]}]`:                             {"10.10.0.7"},
		`[{"addresses": ["10.10.0.7"], "nodeName": "n", "targetRef": {"kind": "Pod"}}]`: {"10.10.0.7"},
	} {
		root.Annotations = map[string]string{api.AnnotationProviderEndpoints: list}
		p := plan.ShadowEndpointSlice(plan.ShadowEndpointSliceInput{
			Root: root, Origin: "milan", Pods: map[netip.Addr]string{netip.MustParseAddr("10.10.0.7"): "node-2"},
		})
		var got []string
		for _, endpoint := range p.Objects[0].(*discoveryv1.EndpointSlice).Endpoints {
			got = append(got, endpoint.Addresses...)
			if *endpoint.NodeName != "node-2" || endpoint.TargetRef != nil {
				t.Errorf("%s: node and pod are taken from the consumer", list)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || (p.Degraded.Reason == "AddressRefused") != (want == nil) {
			t.Errorf("%s: %s%s", list, diff, p.Degraded.Reason)
		}
	}
}

// TestAttackEndpointsBeforeTheNetworkIsConfigured: a consumer names endpoints while the provider has a gateway for it,
// but no Configuration that says which addresses are the consumer's.
//
// Outcome: no address passes; the ShadowEndpointSlice waits for the Configuration.
func TestAttackEndpointsBeforeTheNetworkIsConfigured(t *testing.T) {
	t.Parallel()
	if got, reason := led(plan.ShadowEndpointSliceInput{Networked: true}, "", "10.10.3.7"); got != nil || reason != "AddressesPending" {
		t.Errorf("addresses %q, reason %q", got, reason)
	}
}

// TestAttackEndpointsOfThirdClusters: a consumer names pods of a third cluster as endpoints: of one the provider is not
// networked with, or of one whose Configuration denies direct connections.
//
// Outcome: their addresses are left out, also where the consumer has a pod of the same address. Those of a peer that
// does not deny it pass.
func TestAttackEndpointsOfThirdClusters(t *testing.T) {
	t.Parallel()
	denies := configuration("10.10.0.0/16", "10.74.0.0/16")
	denies.Annotations = map[string]string{api.AnnotationDenyDirectConnections: api.True}
	in := plan.ShadowEndpointSliceInput{Networked: true, Configurations: map[string]networkingv1beta1.Configuration{
		"milan": configuration("10.10.0.0/16", "10.71.0.0/16"), "turin": configuration("10.20.0.0/16", "10.72.0.0/16"), "paris": denies,
	}}
	got, _ := led(in, `{"turin": ["10.20.0.7"], "paris": ["10.10.0.8"], "berlin": ["10.10.0.9"]}`, "10.10.0.7", "10.20.0.7", "10.10.0.8", "10.10.0.9")
	if diff := cmp.Diff([]string{"10.71.0.7", "10.72.0.7"}, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}
