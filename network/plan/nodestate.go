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
)

// NodeStateInput is what decides the network of a node.
type NodeStateInput struct {
	// Self is this node; its CIDRs are those of its pods.
	Self  Member
	Under Underlay
	// PodDevices are those behind which pods of this node are; nothing else comes in by them.
	PodDevices []string
	// Gateways of all peers; none = nothing of Liqo is wanted on the node.
	Gateways []Member
	// Standbys are further pods of gateways. What they send is accepted also, but nothing leads to them.
	Standbys []Member
	// Nodes are the outer addresses of all nodes.
	Nodes []netip.Addr
	// Local are addresses this cluster depends on, as all nodes publish them. What is for one stays off the tunnel
	// though a peer is seen there.
	Local []netip.Addr
	// Sources are the outer addresses that frames are accepted from; none = any.
	Sources []netip.Prefix
	// Exposed are the targets of IP objects that are reached through a node.
	Exposed []netip.Addr
	// Port of the overlay, UDP.
	Port int
	// RulePriority of our rule; 0 = RulePriority.
	RulePriority int
	// Masquerade hides pods from peers behind the node's overlay address, as anything else.
	Masquerade bool
}

// NodeState plans a node: traffic for a peer goes through the overlay to the peer's gateway, from pods
// with their own source and from anything else with the node's overlay address.
func NodeState(in NodeStateInput) State {
	if len(in.Gateways) == 0 {
		return State{}
	}
	excepted := in.excepted()
	s := joinOverlay(in.Self, distinct(in.Gateways, in.Self, excepted), in.Under, in.Port)
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

// excepted are the local addresses at which a peer is seen, sorted. A range is granted where there is none, but a node
// may join later, and what a peer is seen at never changes under its connections.
func (in NodeStateInput) excepted() []netip.Prefix {
	var out []netip.Prefix
	for _, a := range in.Local {
		seen := func(p netip.Prefix) bool { return p.Contains(a) }
		if slices.ContainsFunc(in.Gateways, func(g Member) bool { return slices.ContainsFunc(g.CIDRs, seen) }) {
			out = append(out, host(a))
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// arriving keeps peers from the node. What comes out of the overlay for an address of the node is an
// answer, a target of an IP object or a ping: never a new connection to a port of the node. It is judged after
// connection tracking (−200) and before kube-proxy's DNAT (−100), which would turn a node port into a pod.
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

// frames keeps the overlay to its members. Frames of others are dropped by their source, and those of pods of this node
// also by the device they come in by, as pods may forge addresses; of what comes in there a gateway is known by its
// Ethernet address too. The socket of the overlay is bound to all addresses, but no member sends to others than the
// outer ones.
func (in NodeStateInput) frames() chain {
	c := chain{name: "frames"}
	var gateways, members, unheard []netip.Addr
	var heard []station
	for _, g := range slices.Concat(in.Gateways, in.Standbys) {
		if !g.placed() {
			continue
		}
		gateways = append(gateways, g.Outer)
		if g.Here && len(g.MACs) == 0 {
			unheard = append(unheard, g.Outer)
		}
		for _, mac := range g.MACs {
			heard = append(heard, station{g.Outer, mac})
		}
	}
	members = slices.Concat(gateways, in.Nodes)
	devices := quotedSet(append([]string{api.OverlayInterface}, in.PodDevices...))
	for _, f := range families() {
		to, some := f.match("daddr", hosts(members))
		if !some {
			continue
		}
		others, _ := f.match("daddr !=", hosts(members))
		c.add(others + " fib daddr type != unicast drop")
		if pods, ok := f.match("saddr", in.Self.CIDRs); ok {
			c.add(words(pods, f.but(gateways), to, "drop"))
		}
		if strangers, ok := f.match("saddr !=", in.Sources); ok {
			c.add(words(strangers, to, "drop"))
		}
		c.add(words("iifname "+devices, to, f.but(unheard), f.butStations(heard), "drop"))
	}
	return c
}

// transportMark is on what gateways send to addresses of peers by their own device: what tunnels are made
// of. On flat networks the peers' nodes have such addresses, and the overlay would lead back to the gateway.
// Its bits are none of kube-proxy's (0xc000), Cilium's (0x0f00), AWS's (0x80), or Calico's (0xffff0000).
const transportMark = 0x3000

// outer is about what carries the overlay and tunnels, after kube-proxy's NAT (−100): a Service may lead
// pods to the overlay's port of a node, and the client's address may be behind that of a node.
func (in NodeStateInput) outer() chain {
	c := chain{name: "outer", base: "filter hook prerouting priority dstnat + 10"}
	c.add(fmt.Sprintf("udp dport %d jump frames", in.Port))
	var gateways []netip.Addr
	var peers []netip.Prefix
	for _, g := range slices.Concat(in.Gateways, in.Standbys) {
		if g.placed() {
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

// station is an address on an Ethernet.
type station struct {
	addr netip.Addr
	mac  string
}

// but leaves out sources, butStations sources on an Ethernet; "" = none of the family.
func (f family) but(sources []netip.Addr) string {
	text, ok := f.match("saddr !=", hosts(sources))
	if !ok {
		return ""
	}
	return text
}

func (f family) butStations(list []station) string {
	list = slices.DeleteFunc(slices.Clone(list), func(s station) bool { return s.addr.Is6() != f.six })
	if len(list) == 0 {
		return ""
	}
	// In the order of nft: as numbers whose last byte weighs most.
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

// words joins those that are not empty.
func words(list ...string) string {
	return strings.Join(slices.DeleteFunc(list, func(w string) bool { return w == "" }), " ")
}

// unmarked takes the mark off what enters the overlay. The frame around a packet inherits its
// mark, and kube-proxy would masquerade the frame for the mark it set on the packet within; the
// kernel then sends a frame with a wrong checksum, which is lost.
func unmarked() chain {
	c := chain{name: "unmarked", base: "filter hook postrouting priority mangle"}
	c.add(fmt.Sprintf("oifname %q meta mark set 0x00000000", api.OverlayInterface))
	return c
}

// leaving fixes the source of what goes to peers before the CNI masquerades it. An "accept" would
// not stop the CNI's chain, which comes 10 later; only a binding does, so pods are bound to
// themselves. Addresses of nodes come first, because on some clouds they lie among the pods'.
// What a Service made of a packet from a peer must come back through this node, so it leaves
// with an address of this node.
func (in NodeStateInput) leaving(own []Address) chain {
	c := chain{name: "leaving", base: "nat hook postrouting priority srcnat - 10"}
	c.add(
		fmt.Sprintf("iifname %q ct status dnat masquerade", api.OverlayInterface),
		fmt.Sprintf("oifname != %q accept", api.OverlayInterface),
	)
	for _, f := range families() {
		self := f.of(prefixesOf(own))
		if len(self) == 0 {
			continue
		}
		node := fmt.Sprintf("snat %s to %s", f.name, self[0].Addr())
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

// bindings bind sources to themselves: ranges by a rule each, single addresses by one map.
func (f family) bindings(list []netip.Prefix) []string {
	var out []string
	single := map[netip.Addr]netip.Addr{}
	for _, p := range f.of(list) {
		if p.IsSingleIP() {
			single[p.Addr()] = p.Addr()
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

func prefixesOf(list []Address) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, a := range list {
		out[i] = a.Prefix
	}
	return out
}
