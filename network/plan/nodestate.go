// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
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
	// Nodes are the outer addresses of all nodes.
	Nodes []netip.Addr
	// Exposed are the targets of IP objects that are reached through a node.
	Exposed []netip.Addr
	// Port of the overlay, UDP.
	Port int
	// RulePriority of our rule; 0 = RulePriority.
	RulePriority int
}

// NodeState plans a node: traffic for a peer goes through the overlay to the peer's gateway, from pods
// with their own source and from anything else with the node's overlay address.
func NodeState(in NodeStateInput) State {
	if len(in.Gateways) == 0 {
		return State{}
	}
	s := joinOverlay(in.Self, distinct(in.Gateways, in.Self, nil), in.Under, in.Port)
	if len(s.Overlays) == 0 {
		return State{}
	}
	priority := RulePriority
	if in.RulePriority != 0 {
		priority = in.RulePriority
	}
	s.Rules = rulesFor(s.Routes, priority, false)
	s.Table = table(in.arriving(), unmarked(), in.leaving(s.Addresses))
	return s.Sorted()
}

// arriving keeps pods from the overlay and peers from the node.
//
// The overlay takes frames from any outer address, because some CNIs masquerade what gateways
// send to nodes; so the node on which a pod runs stops the pod: by its address, and by the device it
// comes in by, as it may forge addresses. What comes out of the overlay for
// an address of the node is an answer, a target of an IP object or a ping: never a new connection
// to a port of the node. It is judged after connection tracking (−200) and before kube-proxy's
// DNAT (−100), which would turn a node port into a pod.
func (in NodeStateInput) arriving() chain {
	c := chain{name: "arriving", base: "filter hook prerouting priority mangle"}
	var gateways, members []netip.Addr
	for _, g := range in.Gateways {
		if g.Outer.IsValid() {
			gateways = append(gateways, g.Outer)
		}
	}
	members = append(append(members, gateways...), in.Nodes...)
	for _, f := range families() {
		pods, some := f.match("saddr", in.Self.CIDRs)
		to, any := f.match("daddr", hosts(members))
		if !some || !any {
			continue
		}
		but, ok := f.match("saddr !=", hosts(gateways))
		if ok {
			pods += " " + but
		} else {
			but = ""
		}
		c.add(fmt.Sprintf("udp dport %d %s %s drop", in.Port, pods, to))
		if len(in.PodDevices) > 0 {
			c.add(fmt.Sprintf("udp dport %d iifname %s%s %s drop", in.Port, quotedSet(in.PodDevices), strings.TrimSuffix(" "+but, " "), to))
		}
	}
	c.add(fmt.Sprintf("iifname != %q accept", api.OverlayInterface), "ct state established,related accept")
	for _, f := range families() {
		if to, ok := f.match("daddr", hosts(in.Exposed)); ok {
			c.add(to + " accept")
		}
	}
	c.add("fib daddr type local icmp type echo-request accept", "fib daddr type local drop")
	return c
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
		c.add(f.bindings(in.Self.CIDRs)...)
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
