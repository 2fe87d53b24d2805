// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// TestFollow: the endpoint that a client dials after its server moved from a to b, for each origin
// of its current endpoint.
func TestFollow(t *testing.T) {
	at := func(address string) *netv1beta1.EndpointStatus {
		return &netv1beta1.EndpointStatus{Addresses: []string{address}, Port: 30742, Protocol: netv1beta1.ProtocolUDP}
	}
	serving := func(address string) Side {
		return Side{Servers: []netv1beta1.GatewayServer{{Status: netv1beta1.GatewayServerStatus{Endpoint: at(address)}}}}
	}
	wrote := func(manager string) []metav1.ManagedFieldsEntry {
		return []metav1.ManagedFieldsEntry{{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:endpoint":{"f:addresses":{}}}}`)}}
	}
	elsewhere := wrote("kubectl-edit")
	elsewhere[0].FieldsV1.SetRawString(`{"f:spec":{"f:mtu":{}}}`)
	several := serving("a")
	several.Servers[0].Status.Endpoint = &netv1beta1.EndpointStatus{Addresses: []string{"a"}, Ports: []int32{30742, 30743}, Protocol: netv1beta1.ProtocolTCP}
	twice := serving("b")
	twice.Servers = append(twice.Servers, twice.Servers...)
	for name, c := range map[string]struct {
		client netv1beta1.GatewayClient
		after  Side
		want   *netv1beta1.EndpointStatus
	}{
		"copied by liqoctl":                    {netv1beta1.GatewayClient{ObjectMeta: metav1.ObjectMeta{ManagedFields: wrote("liqoctl")}, Spec: netv1beta1.GatewayClientSpec{Endpoint: at("a")}}, serving("b"), at("b")},
		"left open":                            {netv1beta1.GatewayClient{}, serving("b"), at("b")},
		"given by liqoctl for a NAT":           {netv1beta1.GatewayClient{ObjectMeta: metav1.ObjectMeta{ManagedFields: wrote("liqoctl")}, Spec: netv1beta1.GatewayClientSpec{Endpoint: at("nat")}}, serving("b"), at("nat")},
		"applied by a user, the same":          {netv1beta1.GatewayClient{ObjectMeta: metav1.ObjectMeta{ManagedFields: wrote("argocd-controller")}, Spec: netv1beta1.GatewayClientSpec{Endpoint: at("a")}}, serving("b"), at("a")},
		"applied by a tool named like us":      {netv1beta1.GatewayClient{ObjectMeta: metav1.ObjectMeta{ManagedFields: wrote("argocd-liqo")}, Spec: netv1beta1.GatewayClientSpec{Endpoint: at("a")}}, serving("b"), at("a")},
		"copied, and a user wrote another one": {netv1beta1.GatewayClient{ObjectMeta: metav1.ObjectMeta{ManagedFields: elsewhere}, Spec: netv1beta1.GatewayClientSpec{Endpoint: at("a")}}, serving("b"), at("b")},
		"another protocol and more ports":      {netv1beta1.GatewayClient{Spec: netv1beta1.GatewayClientSpec{Endpoint: at("a")}}, several, several.Servers[0].Status.Endpoint},
		"two servers":                          {netv1beta1.GatewayClient{Spec: netv1beta1.GatewayClientSpec{Endpoint: at("a")}}, twice, at("a")},
		"a server without address":             {netv1beta1.GatewayClient{Spec: netv1beta1.GatewayClientSpec{Endpoint: at("a")}}, Side{Servers: make([]netv1beta1.GatewayServer, 1)}, at("a")},
		"going":                                {netv1beta1.GatewayClient{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}, Spec: netv1beta1.GatewayClientSpec{Endpoint: at("a")}}, serving("b"), at("a")},
	} {
		own := Side{Clients: []netv1beta1.GatewayClient{c.client}}
		for _, of := range []Side{serving("a"), c.after, c.after} {
			changes := Follow(own, of)
			for _, change := range changes {
				own.Clients[0] = *change.Object.(*netv1beta1.GatewayClient)
			}
			if again := Follow(own, of); len(again) != 0 {
				t.Errorf("%s: the second time differs: %v", name, again)
			}
		}
		if diff := cmp.Diff(c.want, own.Clients[0].Spec.Endpoint); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestUnfollowedEndpoint: a client that dials an endpoint of a user still shows the endpoint that
// its server announced last.
func TestUnfollowedEndpoint(t *testing.T) {
	at := func(address string) *netv1beta1.EndpointStatus {
		return &netv1beta1.EndpointStatus{Addresses: []string{address}, Port: 30742}
	}
	own := Side{Clients: []netv1beta1.GatewayClient{{Spec: netv1beta1.GatewayClientSpec{Endpoint: at("nat")}}}}
	if got := UnfollowedEndpoint(&own.Clients[0]); got != nil {
		t.Errorf("before the server announced anything: %v", got)
	}
	for _, address := range []string{"a", "b"} {
		of := Side{Servers: []netv1beta1.GatewayServer{{Status: netv1beta1.GatewayServerStatus{Endpoint: at(address)}}}}
		for _, change := range Follow(own, of) {
			own.Clients[0] = *change.Object.(*netv1beta1.GatewayClient)
		}
		if diff := cmp.Diff(at(address), UnfollowedEndpoint(&own.Clients[0])); diff != "" {
			t.Errorf("announced (-want +got):\n%s", diff)
		}
	}
	own.Clients[0].Spec.Endpoint = at("b")
	if got := UnfollowedEndpoint(&own.Clients[0]); got != nil {
		t.Errorf("a client that dials what is announced: %v", got)
	}
}

// TestFollowKeysAndCIDRs: keys of clients and servers are followed alike, and each side's own CIDRs
// are the remote ones of the other.
func TestFollowKeysAndCIDRs(t *testing.T) {
	cidrs := func(pods ...string) *netv1beta1.ClusterConfig {
		return &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: pods}}
	}
	of := Side{
		Clients:        []netv1beta1.GatewayClient{{Status: netv1beta1.GatewayClientStatus{PublicKey: []byte("new")}}},
		Configurations: []netv1beta1.Configuration{{Spec: netv1beta1.ConfigurationSpec{Local: cidrs("10.10.0.0/16", "10.99.0.0/16"), Remote: cidrs("10.20.0.0/16")}}},
	}
	own := Side{
		PublicKeys:     []netv1beta1.PublicKey{{Spec: netv1beta1.PublicKeySpec{PublicKey: []byte("old")}}},
		Configurations: []netv1beta1.Configuration{{Spec: netv1beta1.ConfigurationSpec{Local: cidrs("10.20.0.0/16"), Remote: cidrs("10.10.0.0/16")}}},
	}
	changes := Follow(own, of)
	if len(changes) != 2 {
		t.Fatalf("%d changes, want 2", len(changes))
	}
	if key := changes[0].Object.(*netv1beta1.PublicKey).Spec.PublicKey; string(key) != "new" {
		t.Errorf("key %q", key)
	}
	want := of.Configurations[0].Spec.Local
	spec := changes[1].Object.(*netv1beta1.Configuration).Spec
	if diff := cmp.Diff(want, spec.Remote); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(cidrs("10.20.0.0/16"), spec.Local); diff != "" {
		t.Errorf("own CIDRs changed: %s", diff)
	}
}

// onlyAnnotates expects a changed client to differ in annotations only, which note the endpoint that its server announces.
func onlyAnnotates(t *testing.T, was netv1beta1.GatewayClient, changed desired.Object) {
	t.Helper()
	is, ok := changed.(*netv1beta1.GatewayClient)
	if !ok {
		t.Fatalf("a %T of a user is changed", changed)
	}
	was.Annotations = is.Annotations
	if diff := cmp.Diff(&was, is); diff != "" {
		t.Fatalf("what a user wrote is changed: %s", diff)
	}
}

// FuzzFollow: for any two sides, following ends. It changes only the parameters, nothing that a
// user wrote, and nothing that is announced twice.
func FuzzFollow(f *testing.F) {
	f.Add("a", "b", "a", "10.10.0.0/16", "10.20.0.0/16", "liqoctl", byte(1), byte(1))
	f.Add("a", "", "nat", "", "10.20.0.0/16", "argocd", byte(3), byte(0))
	f.Add("", "b", "b", "10.10.0.0/16", "", "liqo/follow", byte(0), byte(2))
	f.Fuzz(func(t *testing.T, before, after, dialled, here, there, manager string, servers, clients byte) {
		at := func(address string) *netv1beta1.EndpointStatus {
			return &netv1beta1.EndpointStatus{Addresses: []string{address}, Port: 51840}
		}
		fields := []metav1.ManagedFieldsEntry{{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:endpoint":{},"f:publicKey":{},"f:remote":{}}}`)}}
		cidrs := func(pod string) *netv1beta1.ClusterConfig {
			return &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: []string{pod}}}
		}
		own := Side{
			Clients:        []netv1beta1.GatewayClient{{ObjectMeta: metav1.ObjectMeta{ManagedFields: fields}, Spec: netv1beta1.GatewayClientSpec{Endpoint: at(dialled), MTU: 1340}}},
			PublicKeys:     []netv1beta1.PublicKey{{ObjectMeta: metav1.ObjectMeta{ManagedFields: fields}, Spec: netv1beta1.PublicKeySpec{PublicKey: []byte(dialled)}}},
			Configurations: []netv1beta1.Configuration{{ObjectMeta: metav1.ObjectMeta{ManagedFields: fields}, Spec: netv1beta1.ConfigurationSpec{Local: cidrs(here), Remote: cidrs(dialled)}}},
		}
		for _, address := range []string{before, after} {
			of := Side{Configurations: []netv1beta1.Configuration{{Spec: netv1beta1.ConfigurationSpec{Local: cidrs(there)}}}}
			for range servers % 3 {
				of.Servers = append(of.Servers, netv1beta1.GatewayServer{Status: netv1beta1.GatewayServerStatus{Endpoint: at(address), PublicKey: []byte(there)}})
			}
			for range clients % 3 {
				of.Clients = append(of.Clients, netv1beta1.GatewayClient{Status: netv1beta1.GatewayClientStatus{PublicKey: []byte(address)}})
			}
			changes := Follow(own, of)
			for _, change := range changes {
				if !strings.HasPrefix(manager, "liqo") {
					onlyAnnotates(t, own.Clients[0], change.Object)
				}
				switch o := change.Object.(type) {
				case *netv1beta1.GatewayClient:
					if len(of.Servers) != 1 || o.Spec.MTU != 1340 {
						t.Fatalf("%v follows %d servers", o.Spec, len(of.Servers))
					}
					own.Clients[0] = *o
				case *netv1beta1.PublicKey:
					own.PublicKeys[0] = *o
				case *netv1beta1.Configuration:
					if diff := cmp.Diff(cidrs(here), o.Spec.Local); diff != "" {
						t.Fatal(diff)
					}
					own.Configurations[0] = *o
				}
			}
			if again := Follow(own, of); len(again) != 0 {
				t.Fatalf("the second time differs: %v", again)
			}
		}
	})
}
