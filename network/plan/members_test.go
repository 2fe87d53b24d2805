// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"testing"
)

// TestMembersOfTheOtherFamilyAreLeftOut: the kernel refuses an entry of another family than the
// device's, and the first refusal would prevent all later changes, for every peer.
func TestMembersOfTheOtherFamilyAreLeftOut(t *testing.T) {
	member := func(name, outer, overlay string) Member {
		return Member{Name: name, Outer: netip.MustParseAddr(outer), Overlay: netip.MustParseAddr(overlay)}
	}
	self := member("self", "10.10.1.7", "10.80.128.0")
	own, peer := TunnelAddresses(true)
	in := GatewayStateInput{Self: self, Under: Underlay{"eth0", 1500}, Port: 6091, Nodes: []Member{
		member("a", "172.31.10.11", "10.80.0.1"), member("b", "fd31::12", "10.80.0.2"), member("c", "172.31.10.13", "10.80.0.3"),
		member("nowhere", "0.0.0.0", "10.80.0.4"),
	}, Tunnel: TunnelInput{Address: own, PeerAddress: peer, MTU: 1340}}
	state := GatewayState(in)
	var got []string
	for _, f := range state.Forwards {
		got = append(got, f.Outer.String())
	}
	if len(got) != 2 || got[0] != "172.31.10.11" || got[1] != "172.31.10.13" || len(state.Neighbors) != 3 {
		t.Errorf("frames go to %v, %d neighbours; want the two of our family, and three with the one that is nowhere", got, len(state.Neighbors))
	}
}
