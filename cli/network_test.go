// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// TestRangesInAnyOrder: a Configuration with the same ranges in another order is the wanted one. It
// is in force when its controller reports that for the current generation.
func TestRangesInAnyOrder(t *testing.T) {
	r := netv1beta1.ClusterCIDR{Pod: []string{"10.1.0.0/16", "10.10.0.0/16"}, External: []string{"10.70.0.0/16"}}
	conf := func(external string, about int64, status metav1.ConditionStatus, pods ...string) *netv1beta1.Configuration {
		c := &netv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
		c.Spec.Remote = &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: pods, External: []string{external}}}
		c.Status.Conditions = []metav1.Condition{{Type: netv1beta1.NetworkCIDRsConfigured, Status: status, ObservedGeneration: about}}
		return c
	}
	for claim, c := range map[string]struct {
		of   *netv1beta1.Configuration
		want bool
	}{
		"another order":              {conf("10.70.0.0/16", 2, "True", "10.10.0.0/16", "10.1.0.0/16"), true},
		"the same order":             {conf("10.70.0.0/16", 2, "True", "10.1.0.0/16", "10.10.0.0/16"), true},
		"granted for the former":     {conf("10.70.0.0/16", 1, "True", "10.1.0.0/16", "10.10.0.0/16"), false},
		"granted for no matter what": {conf("10.70.0.0/16", 0, "True", "10.1.0.0/16", "10.10.0.0/16"), true},
		"not granted":                {conf("10.70.0.0/16", 2, "False", "10.1.0.0/16", "10.10.0.0/16"), false},
		"one is missing":             {conf("10.70.0.0/16", 2, "True", "10.10.0.0/16"), false},
		"another external range":     {conf("10.71.0.0/16", 2, "True", "10.1.0.0/16", "10.10.0.0/16"), false},
		"no endpoint yet":            {&netv1beta1.Configuration{}, false},
	} {
		if got := isConfigured(c.of, r); got != c.want {
			t.Errorf("%s: %t, want %t", claim, got, c.want)
		}
	}
}

// TestAnnounced tests that an endpoint with old node ports does not count as announced.
func TestAnnounced(t *testing.T) {
	at := func(ports ...int32) *netv1beta1.EndpointStatus {
		e := &netv1beta1.EndpointStatus{Addresses: []string{"192.0.2.1"}}
		if e.Ports = ports; len(ports) == 1 {
			e.Port, e.Ports = ports[0], nil
		}
		return e
	}
	for _, c := range []struct {
		claim   string
		kind    string
		request netv1beta1.Endpoint
		status  *netv1beta1.EndpointStatus
		want    bool
	}{
		{"no endpoint yet", "WgGatewayServerTemplate", netv1beta1.Endpoint{ServiceType: "NodePort"}, nil, false},
		{"any node port is accepted", "WgGatewayServerTemplate", netv1beta1.Endpoint{ServiceType: "NodePort"}, at(30001), true},
		{"requested node port", "WgGatewayServerTemplate", netv1beta1.Endpoint{ServiceType: "NodePort", NodePort: 30001}, at(30001), true},
		{"old node port", "WgGatewayServerTemplate", netv1beta1.Endpoint{ServiceType: "NodePort", NodePort: 30002}, at(30001), false},
		{"one of several node ports is old", "WgGatewayServerTemplate", netv1beta1.Endpoint{ServiceType: "NodePort", NodePorts: []int32{30001, 30003}}, at(30001, 30002), false},
		{"all requested node ports", "WgGatewayServerTemplate", netv1beta1.Endpoint{ServiceType: "NodePort", NodePorts: []int32{30001, 30002}}, at(30001, 30002), true},
		{"load balancers ignore node ports", "WgGatewayServerTemplate", netv1beta1.Endpoint{ServiceType: "LoadBalancer", Port: 51840, NodePort: 30002}, at(51840), true},
		{"old port of a load balancer", "WgGatewayServerTemplate", netv1beta1.Endpoint{ServiceType: "LoadBalancer", Port: 51850}, at(51840), false},
		{"one port in a list", "WgGatewayServerTemplate", netv1beta1.Endpoint{ServiceType: "LoadBalancer", Ports: []int32{51840}}, at(51840), true},
		{"all ports of a load balancer", "WgGatewayServerTemplate", netv1beta1.Endpoint{ServiceType: "LoadBalancer", Ports: []int32{51840, 51841}}, at(51840, 51841), true},
		{"other technologies are not compared", "FancyServerTemplate", netv1beta1.Endpoint{ServiceType: "NodePort", NodePort: 30002}, at(443), true},
	} {
		t.Run(c.claim, func(t *testing.T) {
			server := &netv1beta1.GatewayServer{
				Spec:   netv1beta1.GatewayServerSpec{Endpoint: &c.request, ServerTemplateRef: &corev1.ObjectReference{Kind: c.kind}},
				Status: netv1beta1.GatewayServerStatus{Endpoint: c.status},
			}
			if got := announced(server, true); got != c.want {
				t.Errorf("announced: %v, want %v", got, c.want)
			}
			if c.request.ServiceType == "LoadBalancer" && !announced(server, false) {
				t.Error("a port that nobody asked for is compared")
			}
		})
	}
}

// TestAddressesOfEveryExternalRange tests that an address of the peer is mapped by the range that
// contains it, for any number of external ranges.
func TestAddressesOfEveryExternalRange(t *testing.T) {
	external := func(cidrs ...string) *netv1beta1.ClusterConfig {
		return &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: []string{"10.20.0.0/16"}, External: cidrs}}
	}
	c := netv1beta1.Configuration{
		Spec:   netv1beta1.ConfigurationSpec{Remote: external("10.70.0.0/16", "10.80.0.0/16")},
		Status: netv1beta1.ConfigurationStatus{Remote: external("10.71.0.0/16", "10.81.0.0/16")},
	}
	const none = "invalid IP"
	for remote, want := range map[string]string{
		"10.70.0.2": "10.71.0.2", "10.80.0.2": "10.81.0.2", "10.90.0.2": none, "fd00::2": none, "": none,
	} {
		if got, ok := toLocal([]netv1beta1.Configuration{{}, c}, remote); got.String() != want || ok != got.IsValid() {
			t.Errorf("%s is reached as %s, %t, want %s", remote, got, ok, want)
		}
	}
}
