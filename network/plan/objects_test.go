// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// FuzzObjects: for any content of the objects of users, peers and nodes, gateways and nodes get a
// state. It is the same in any order of the objects, and addresses are of the family they are used
// with.
func FuzzObjects(f *testing.F) {
	f.Add("10.10.0.0/16", "10.20.0.0/16,10.21.0.0/16", "10.71.0.0/16,10.72.0.0/16", "10.70.0.0/16", "10.10.1.5", "10.80.128.1", "10.10.1.0/24,192.168.1.1", "10.96.0.1", "10.70.0.2", byte(0))
	f.Add("fd00:10::/64,10.10.0.0/16", "fd00:20::/64", "10.71.0.0/16", "::/0", "fd00::5", "10.80.128.1", "::ffff:10.0.0.0/120", "::1", "::ffff:1.2.3.4", byte(7))
	f.Add("0.0.0.0/0", "10.0.0.0/8,10.0.0.0/8", "10.0.0.0/8", "10.0.0.1/32", "", "0.0.0.0", "10.80.128.1/32", "10.10.1.5", "10.10.1.5", byte(3))
	f.Add("10.10.0.0/16", "", "0.0.0.0/0", "0.0.0.0/16", "10.10.0.0", "0.0.0.0", "0.0.0.0/0", "0.0.0.1", "0.0.0.0", byte(0)) // one external address, two targets
	f.Fuzz(func(t *testing.T, local, real, view, external, outer, overlay, ranges, target, exposed string, flags byte) {
		list := func(text string) []string { return strings.Split(text, ",") }
		meta := metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}
		other := metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "turin"}
		cidrs := func(pod, external string) *netv1beta1.ClusterConfig {
			return &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: list(pod), External: list(external)}}
		}
		fabric := netv1beta1.InternalFabricSpec{GatewayIP: outer, StandbyIPs: list(target), RemoteCIDRs: list(view)}
		fabric.Interface.Gateway.IP = overlay
		another := *fabric.DeepCopy()
		another.GatewayIP, another.RemoteCIDRs, another.Interface.Gateway.IP = target, list(real), exposed
		node := &netv1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: "rome-1"}, Spec: netv1beta1.InternalNodeSpec{PodCIDRs: list(ranges)}}
		node.Spec.Interface.Node.IP, node.Status.NodeIP = exposed, netv1beta1.NodeIP{Local: target, Remote: outer}
		second := node.DeepCopy()
		second.Name, second.Spec.Interface.Node.IP = "rome-2", overlay
		world := []runtime.Object{
			&netv1beta1.Configuration{ObjectMeta: meta, Spec: netv1beta1.ConfigurationSpec{Local: cidrs(local, external), Remote: cidrs(real, external)}, Status: netv1beta1.ConfigurationStatus{Remote: cidrs(view, local)}},
			&netv1beta1.PublicKey{ObjectMeta: meta, Spec: netv1beta1.PublicKeySpec{PublicKey: []byte(target + strings.Repeat("k", 32))[:32]}},
			&netv1beta1.InternalFabric{ObjectMeta: meta, Spec: fabric}, &netv1beta1.InternalFabric{ObjectMeta: other, Spec: another}, node, second,
			&ipamv1alpha1.IP{ObjectMeta: meta, Spec: ipamv1alpha1.IPSpec{IP: target, Masquerade: flags&1 != 0}, Status: ipamv1alpha1.IPStatus{IP: exposed}},
			&ipamv1alpha1.IP{ObjectMeta: other, Spec: ipamv1alpha1.IPSpec{IP: outer, Masquerade: flags&2 != 0}, Status: ipamv1alpha1.IPStatus{IP: overlay}},
		}
		pod, _ := netip.ParseAddr(outer)
		for _, p := range []process{{Role: "gateway", Node: "rome-1", Pod: pod, MTU: 1500, Server: flags&4 != 0}, {Role: "fabric", Node: "rome-1", MTU: 1500}} {
			want := ownState(p, world, nil)
			slices.Reverse(world)
			if again := ownState(p, world, nil); again.String() != want.String() {
				t.Fatalf("the order matters:\n%s\n%s", want, again)
			}
			if c := Diff(want, want); !c.Empty() {
				t.Fatalf("a state differs from itself:\n%s", c)
			}
			for _, r := range want.Routes {
				if r.Via.IsValid() && r.Via.Is6() != r.To.Addr().Is6() {
					t.Fatalf("route to %s by %s", r.To, r.Via)
				}
			}
			if strings.Contains(want.Table, "invalid") {
				t.Fatalf("an invalid address in\n%s", want.Table)
			}
		}
	})
}

// TestMovesChangeNoRuleOfNodes: when another pod of a gateway becomes active, a node changes only
// the address it sends to.
func TestMovesChangeNoRuleOfNodes(t *testing.T) {
	t.Parallel()
	state := func(active, standby string) State {
		fabric := &netv1beta1.InternalFabric{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
			Spec:       netv1beta1.InternalFabricSpec{GatewayIP: active, StandbyIPs: []string{standby}, RemoteCIDRs: []string{"10.71.0.0/16"}},
		}
		fabric.Spec.Interface.Gateway.IP = "10.80.128.0"
		node := &netv1beta1.InternalNode{ObjectMeta: metav1.ObjectMeta{Name: "rome-1"}, Spec: netv1beta1.InternalNodeSpec{PodCIDRs: []string{"10.10.1.0/24"}}}
		node.Spec.Interface.Node.IP, node.Status.NodeIP = "10.80.0.1", netv1beta1.NodeIP{Remote: "172.31.10.11"}
		node.Status.LocalAddresses = []string{"172.31.10.11/24", "10.10.1.1/24"}
		return ownState(process{Role: "fabric", Node: "rome-1", MTU: 1500}, []runtime.Object{fabric, node}, nil)
	}
	before, after := state("10.10.1.7", "10.10.2.7"), state("10.10.2.7", "10.10.1.7")
	c := Diff(before, after)
	if len(c.Forwards) == 0 {
		t.Error("nothing leads to the other pod")
	}
	c.Forwards = nil
	if !c.Empty() {
		t.Errorf("more changes:\n%s", c)
	}
	for _, ip := range []string{"10.10.1.7", "10.10.2.7"} {
		if strings.Count(before.Table, ip) == 0 {
			t.Errorf("frames from %s are not accepted:\n%s", ip, before.Table)
		}
	}
}

// TestFrameSources: frames are accepted from gateway pods, published addresses of nodes and further
// addresses. They are accepted from anywhere while a node has published nothing.
func TestFrameSources(t *testing.T) {
	t.Parallel()
	fabrics := []*netv1beta1.InternalFabric{{Spec: netv1beta1.InternalFabricSpec{GatewayIP: "10.10.1.7", StandbyIPs: []string{"10.10.2.7"}}}, {Spec: netv1beta1.InternalFabricSpec{GatewayIP: "0.0.0.0"}}}
	node := func(ip string, local ...string) *netv1beta1.InternalNode {
		return &netv1beta1.InternalNode{Status: netv1beta1.InternalNodeStatus{NodeIP: netv1beta1.NodeIP{Remote: ip}, LocalAddresses: local}}
	}
	published := []*netv1beta1.InternalNode{node("172.31.10.11", "172.31.10.11/24", "10.10.1.0/32"), node("172.31.10.12", "172.31.10.12/24")}
	further := netv1beta1.ParseRanges("192.0.2.0/24")
	want := netv1beta1.ParseRanges("192.0.2.0/24", "10.10.1.7/32", "10.10.2.7/32", "172.31.10.11/32", "172.31.10.11/32",
		"10.10.1.0/32", "172.31.10.12/32", "172.31.10.12/32")
	if got := frameSources(fabrics, published, further); !slices.Equal(got, want) {
		t.Errorf("frames come from %v, want %v", got, want)
	}
	if got := frameSources(fabrics, append(published, node("172.31.10.13")), further); got != nil {
		t.Errorf("while a node has published nothing frames come from %v only", got)
	}
}
