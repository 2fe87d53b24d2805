// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// NodeStateInput holds the input of NodeState.
type NodeStateInput struct {
	// Self is this node; its CIDRs are those of its pods.
	Self  Member
	Under Underlay
	// PodDevices are the devices with pods of this node behind them; nothing else arrives on them.
	PodDevices []string
	// Gateways are the gateways of all peers; none = Liqo configures nothing on the node.
	Gateways []Member
	// Standbys are further pods of gateways. Packets they send are accepted, but nothing is routed
	// to them.
	Standbys []Member
	// Nodes are the outer addresses of all nodes.
	Nodes []netip.Addr
	// Local holds the addresses this cluster depends on, as all nodes publish them. Packets for
	// them stay off the tunnel even if a peer is remapped to a range that contains them.
	Local []netip.Addr
	// Sources are the outer addresses that frames are accepted from; none = any.
	Sources []netip.Prefix
	// Exposed are the targets of IP objects that are reached through a node.
	Exposed []netip.Addr
	// Port is the UDP port of the overlay.
	Port int
	// RulePriority is the priority of Liqo's rule; 0 = RulePriority.
	RulePriority int
	// Masquerade translates the source of pods to the node's overlay address, as for all other
	// senders.
	Masquerade bool
}

// NodeState plans a node. Traffic for a peer goes through the overlay to the peer's gateway: that of
// pods with their own source, all other traffic with the node's overlay address.
func NodeState(in NodeStateInput) State {
	if len(in.Gateways) == 0 {
		return State{}
	}
	excepted := in.excepted()
	gateways, _ := distinct(in.Self, excepted, in.Gateways)
	s := joinOverlay(in.Self, gateways, in.Under, in.Port)
	if len(s.Overlays) == 0 {
		return State{}
	}
	for _, p := range excepted {
		s.Routes = append(s.Routes, Route{To: p, Throw: true})
	}
	priority := RulePriority
	if in.RulePriority != 0 {
		priority = in.RulePriority
	}
	s.Rules = rulesFor(s.Routes, priority, false)
	for i := range s.Rules {
		s.Rules[i].Unmarked = transportMark
	}
	s.Table = table(in.arriving(), in.frames(), in.outer(), unmarked(), in.leaving(s.Addresses))
	return s
}

// excepted returns the local addresses that lie in a range a peer is remapped to, sorted. No such
// range is granted, but a node may join later, and a granted range never changes under its
// connections.
func (in NodeStateInput) excepted() []netip.Prefix {
	var out []netip.Prefix
	for _, a := range in.Local {
		isRemote := func(g Member) bool { return netv1beta1.Ranges(g.CIDRs).Contains(a) }
		if slices.ContainsFunc(in.Gateways, isRemote) {
			out = append(out, host(a))
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// arriving protects the node from peers. A packet from the overlay to an address of the node may be
// an answer, for a target of an IP object, or a ping. It never opens another connection to a port
// of the node. The chain runs after connection tracking (−200) and before kube-proxy's DNAT (−100),
// which would turn a node port into a pod.
func (in NodeStateInput) arriving() chain {
	c := chain{name: "arriving", base: "filter hook prerouting priority mangle"}
	c.add(fmt.Sprintf("iifname != %q accept", api.OverlayInterface), "ct state established,related accept")
	for _, f := range families() {
		if to, ok := f.match("daddr", hosts(in.Exposed)); ok {
			c.add(to + " accept")
		}
	}
	c.add("fib daddr type local icmp type echo-request accept", "fib daddr type local drop")
	return c
}

// frames limits the overlay to its members. Frames of others are dropped by their source address.
// Frames from pods of this node are also checked by the device they arrive on, because pods may
// forge addresses. Gateways among these pods are identified by their Ethernet address as well. The
// overlay's socket is bound to all addresses, but members send to outer addresses only.
func (in NodeStateInput) frames() chain {
	c := chain{name: "frames"}
	var gateways, unknown []netip.Addr // unknown are those whose Ethernet address is not known
	var known []station
	for _, g := range slices.Concat(in.Gateways, in.Standbys) {
		if !g.hasOuter() {
			continue
		}
		gateways = append(gateways, g.Outer)
		if g.Here && len(g.MACs) == 0 {
			unknown = append(unknown, g.Outer)
		}
		for _, mac := range g.MACs {
			known = append(known, station{g.Outer, mac})
		}
	}
	members := slices.Concat(gateways, in.Nodes)
	devices := quotedSet(append([]string{api.OverlayInterface}, in.PodDevices...))
	for _, f := range families() {
		to, some := f.match("daddr", hosts(members))
		if !some {
			continue
		}
		elsewhere, _ := f.match("daddr !=", hosts(members))
		c.add(elsewhere + " fib daddr type != unicast drop")
		if pods, ok := f.match("saddr", in.Self.CIDRs); ok {
			c.add(words(pods, f.except("saddr", gateways), to, "drop"))
		}
		if others, ok := f.match("saddr !=", in.Sources); ok {
			c.add(words(others, to, "drop"))
		}
		c.add(words("iifname "+devices, to, f.except("saddr", unknown), f.exceptStations(known), "drop"))
	}
	return c
}

// transportMark marks packets that gateways send to addresses of peers through their own device:
// the tunnels' transport. On flat networks the peers' nodes have such addresses, and the overlay
// would route the packets back to the gateway. The mark shares no bits with kube-proxy (0xc000),
// Cilium (0x0f00), AWS (0x80), or Calico (0xffff0000).
const transportMark = 0x3000

// outer filters and marks the transport of the overlay and of tunnels, after kube-proxy's NAT
// (−100). A Service may translate packets of pods to the overlay's port of a node, and the client's
// address may be behind that of a node.
func (in NodeStateInput) outer() chain {
	c := chain{name: "outer", base: "filter hook prerouting priority dstnat + 10"}
	c.add(fmt.Sprintf("udp dport %d jump frames", in.Port))
	var gateways []netip.Addr
	var peers []netip.Prefix
	for _, g := range slices.Concat(in.Gateways, in.Standbys) {
		if g.hasOuter() {
			gateways, peers = append(gateways, g.Outer), append(peers, g.CIDRs...)
		}
	}
	for _, f := range families() {
		from, some := f.match("saddr", hosts(gateways))
		if to, any := f.match("daddr", peers); some && any {
			c.add(fmt.Sprintf("%s %s meta mark set 0x%08x", from, to, transportMark))
		}
	}
	return c
}

// station is an IP address with an Ethernet address.
type station struct {
	addr netip.Addr
	mac  string
}

// exceptStations returns an expression that excludes pairs of source and Ethernet address, or "" if
// none is of the family.
func (f family) exceptStations(list []station) string {
	list = slices.DeleteFunc(slices.Clone(list), func(s station) bool { return s.addr.Is6() != f.six })
	if len(list) == 0 {
		return ""
	}
	// nft orders them as numbers with the most significant byte last.
	key := func(s station) string {
		mac, _ := hex.DecodeString(strings.ReplaceAll(s.mac, ":", ""))
		return string(append(s.addr.AsSlice(), mac...))
	}
	slices.SortFunc(list, func(a, b station) int { return compareReversed(key(a), key(b)) })
	list = slices.Compact(list)
	elements := make([]string, len(list))
	for i, s := range list {
		elements[i] = fmt.Sprintf("%s . %s", s.addr, s.mac)
	}
	return fmt.Sprintf("%s saddr . ether saddr != { %s }", f.name, strings.Join(elements, ", "))
}

// unmarked removes the mark of packets that enter the overlay. The outer frame inherits the
// packet's mark, and kube-proxy would masquerade the frame for a mark it set on the inner packet.
// The kernel then sends a frame with a wrong checksum, which is lost.
func unmarked() chain {
	c := chain{name: "unmarked", base: "filter hook postrouting priority mangle"}
	c.add(fmt.Sprintf("oifname %q meta mark set 0x00000000", api.OverlayInterface))
	return c
}

// leaving translates the source of packets to peers before the CNI masquerades it. An "accept"
// would not stop the CNI's chain, which runs 10 later. Only a NAT binding does, so the source of
// pods is translated to itself. Addresses of nodes come first, because on some clouds they lie in
// the pods' ranges. Answers to a packet from a peer that a Service translated must return through
// this node, so the packet leaves with an address of this node.
func (in NodeStateInput) leaving(own []Address) chain {
	c := chain{name: "leaving", base: "nat hook postrouting priority srcnat - 10"}
	c.add(
		fmt.Sprintf("iifname %q ct status dnat masquerade", api.OverlayInterface),
		fmt.Sprintf("oifname != %q accept", api.OverlayInterface),
	)
	for _, f := range families() {
		i := slices.IndexFunc(own, func(a Address) bool { return is6(a.Prefix) == f.six })
		if i < 0 {
			continue
		}
		node := fmt.Sprintf("snat %s to %s", f.name, own[i].Prefix.Addr())
		c.add(fmt.Sprintf("meta nfproto %s fib saddr type local %s", f.meta, node))
		if nodes, ok := f.match("saddr", hosts(in.Nodes)); ok {
			c.add(nodes + " " + node)
		}
		if !in.Masquerade {
			c.add(f.bindings(in.Self.CIDRs)...)
		}
		c.add(fmt.Sprintf("meta nfproto %s %s", f.meta, node))
	}
	return c
}

// bindings returns rules that translate sources to themselves: one rule per range, and one map for
// single addresses.
func (f family) bindings(list []netip.Prefix) []string {
	var out []string
	var single []mapped
	for _, p := range f.of(list) {
		if p.IsSingleIP() {
			single = append(single, mapped{p.Addr(), p.Addr()})
			continue
		}
		p = p.Masked()
		out = append(out, fmt.Sprintf("%s saddr %s snat %s prefix to %s", f.name, p, f.name, p))
	}
	if len(single) > 0 {
		out = append(out, fmt.Sprintf("snat %s to %s saddr map %s", f.name, f.name, mapping(single)))
	}
	return out
}
