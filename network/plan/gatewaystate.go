// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// GatewayStateInput holds the input of GatewayState.
type GatewayStateInput struct {
	// Self is this gateway's end of the overlay; without addresses there is no overlay yet.
	Self Member
	// Node is the name of the node the gateway runs on.
	Node  string
	Under Underlay
	// Nodes and Gateways are the other members of the overlay.
	Nodes    []Member
	Gateways []Member
	// Sources are the outer addresses that frames are accepted from; none = any.
	Sources []netip.Prefix
	// Pods and External are the ranges this cluster announces to the peer.
	Pods, External []netip.Prefix
	// Remote maps the ranges the peer announced to those they are remapped to.
	Remote netv1beta1.Mappings
	// Exposed are the IP objects of this cluster.
	Exposed []Exposed
	// Protected holds the addresses of pods of this cluster that accept no connection from the
	// peer. They open connections to the peer's pods, and are reachable as targets of IP objects.
	Protected []netip.Addr
	Tunnel    TunnelInput
	// Port is the UDP port of the overlay.
	Port int
	// Tracks is set if rules of users use connection tracking between pods.
	Tracks bool
	// Relays redirect new flows of the tunnel while a server hands over.
	Relays []Relay
}

// Relay redirects new flows for a port of a tunnel to another port of this pod.
type Relay struct{ Port, To int }

// Exposed is an IP object: peers reach Target by the address External.
type Exposed struct {
	External, Target netip.Addr
	// Masquerade translates the source of the traffic to the gateway pod's own address.
	Masquerade bool
}

// TunnelInput is one tunnel and its peer.
type TunnelInput struct {
	// Address is the local address in the tunnel, PeerAddress the peer's.
	Address     netip.Prefix
	PeerAddress netip.Addr
	// MTU is the configured MTU, in bytes.
	MTU int
	// Passes is the longest packet that reaches the peer, in bytes; 0 = not known. The device keeps
	// the configured MTU, so that probes can find out when longer packets pass again.
	Passes int
	// ListenPort is a port of the transport; 0 = any. It is unset in a client over TCP, because
	// only servers listen.
	ListenPort int
	// Listen and Dial are ports of further tunnels beside the first, of the same peer and the same
	// transport: a server listens on each of Listen, a client dials each of Dial.
	Listen, Dial []int
	// Silent holds the numbers of the tunnels in which the peer does not answer; the first tunnel
	// is 0.
	Silent []int
	// TCP selects TCP as the tunnel's transport in place of UDP.
	TCP bool
	// PublicKey is the local key and PeerKey the peer's, in base64; an empty PeerKey = not known
	// yet.
	PublicKey, PeerKey string
	// Endpoint is the peer's address; invalid = the peer dials this gateway.
	Endpoint netip.AddrPort
}

// tunnelOverhead is the bytes WireGuard adds to a packet over IPv6: 40 + UDP 8 + WireGuard 32. It
// is used for IPv4 too, because behind a NAT64 the two ends use different families.
const tunnelOverhead = 40 + 8 + 32

// keepalive is the keepalive interval of a client, in seconds. It is below the 30 s after which
// NATs may forget UDP (RFC 4787 has 120 s, but many take 30).
const keepalive = 25

// GatewayState plans a gateway: the tunnel to the peer, the overlay to nodes and other gateways, and
// between them the translation of the peer's addresses to the ranges they are remapped to.
//
//	         ┌── from-peer ──┐ ┌ exposed ┐ ┌──── forward ────┐ ┌─ sources ─┐
//	tunnel ─▶│ remote→local  ├─┤  DNAT   ├─┤ pods, IP objects├─┤masquerade ├─▶ overlay, pod's device
//	         └───────────────┘ └─────────┘ └─────────────────┘ └───────────┘
//	         ┌─── to-peer ───┐ ┌ sources ┐
//	tunnel ◀─┤ local→remote  ├─┤  SNAT   ├───────────────────────────────────◀ overlay, pod's device
//	         └───────────────┘ └─────────┘
//
// The stateless translation is at the tunnel's edge, so routing, reverse path filter and connection
// tracking see remapped addresses only. A pod of the peer may even have the address of the gateway
// pod.
func GatewayState(in GatewayStateInput) State {
	in.Exposed = translatable(in.Exposed)
	members, routed := distinct(in.Self, in.localRanges(), in.Nodes, in.Gateways)
	s := joinOverlay(in.Self, members, in.Under, in.Port)
	for n := range in.tunnels() {
		in.addTunnel(&s, n)
	}
	s.Settings = append(s.Settings, deviceSettings(in.Under.Device)...)
	longest, narrow := s.Tunnels[0].MTU, 0
	if in.Tunnel.Passes > 0 && in.Tunnel.Passes < longest {
		longest, narrow = in.Tunnel.Passes, in.Tunnel.Passes
	}
	for n := range in.tunnels() {
		dev := api.TunnelInterface(n)
		if n == 0 {
			dev = api.TunnelInterface(in.answering())
		}
		for _, r := range in.Remote {
			s.Routes = append(s.Routes, Route{Device: dev, To: r.Local, Table: spreadTable(n), MTU: narrow})
		}
	}
	if node, ok := in.targetNode(); ok {
		for _, a := range in.targets(routed) {
			s.Routes = append(s.Routes, Route{Device: api.OverlayInterface, To: host(a),
				Via: inFamily(node.Overlay, a.Is6())})
		}
	}
	priority := RulePriority
	if in.tunnels() > 1 {
		priority++ // behind what is spread, which is behind users' rules
	}
	s.Rules = append(rulesFor(s.Routes, priority, true), in.spreadRules()...)
	s.Quotes, s.Exposure = in.quotes(), Exposure{Targets: in.exposures(), Ranges: in.External}
	s.Table = table(in.fromPeer(), in.spread(), in.toPeer(), in.relayed(), in.exposed(), in.sources(),
		in.forward(longest), in.input())
	return s
}

// targetNode returns the node that routes to targets outside the pods: the gateway's own node, else the
// first by name. A CNI would drop foreign sources from a pod, so packets cannot leave by the pod's
// own device.
func (in GatewayStateInput) targetNode() (Member, bool) {
	var best Member
	for _, n := range in.Nodes {
		if n.ready() && (!best.Overlay.IsValid() || n.Name == in.Node || best.Name != in.Node && n.Name < best.Name) {
			best = n
		}
	}
	return best, best.ready() && in.Self.ready()
}

// targets returns the targets of IP objects that need a route of their own: those that lie neither in
// the pods' ranges nor in a routed prefix. There may be thousands of targets and prefixes.
func (in GatewayStateInput) targets(routed prefixes) []netip.Addr {
	routed.add(netip.PrefixFrom(inFamily(netip.IPv4Unspecified(), true), 96)) // members' next hops for IPv6
	masqueraded := map[netip.Addr]bool{}
	for _, e := range in.Exposed {
		if e.Masquerade {
			masqueraded[e.Target] = true
		}
	}
	var out []netip.Addr
	for _, e := range in.Exposed {
		if !masqueraded[e.Target] && !routed.contain(e.Target) && !netv1beta1.Ranges(in.Pods).Contains(e.Target) {
			out = append(out, e.Target)
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// localRanges returns the ranges that the peer is remapped to.
func (in GatewayStateInput) localRanges() []netip.Prefix {
	out := make([]netip.Prefix, len(in.Remote))
	for i, r := range in.Remote {
		out[i] = r.Local
	}
	return out
}

// fromPeer translates the peer's addresses to those they are remapped to, and drops packets with
// other sources. It runs before connection tracking, but after fragments are reassembled: tracking,
// which the NAT chains enable in the namespace, does that at priority −400, and this is −300. Each
// rule ends the chain, so that a range that is both remote and local is not translated twice.
//
// Traffic between pods bypasses connection tracking unless a user needs it. Another gateway can
// then take over open connections, and no table fills up. Pods that are targets of IP objects
// answer under their external address, so packets from them are tracked. Packets from and to
// protected pods are tracked too: the peer may answer them, but opens no connection to them. The
// overlay's frames come first, because they often arrive in segments, forty for one inner packet.
// Frames from addresses outside Sources are dropped.
func (in GatewayStateInput) fromPeer() chain {
	c := chain{name: "from-peer", base: "filter hook prerouting priority raw"}
	for _, f := range families() {
		if others, ok := f.match("saddr !=", in.Sources); ok && f.six == in.Self.Outer.Is6() {
			c.add(fmt.Sprintf("iifname %q udp dport %d %s drop", in.Under.Device, in.Port, others))
		}
	}
	c.add(fmt.Sprintf("iifname %q udp dport %d notrack accept", in.Under.Device, in.Port))
	var arriving []string
	for _, f := range families() {
		if in.Tracks {
			break
		}
		to, some := f.match("daddr", in.Pods)
		from, _ := f.match("saddr", in.Pods)
		peer, any := f.match("daddr", in.localRanges())
		if !some || !any {
			continue
		}
		tracked := slices.Clone(in.Protected)
		for _, e := range in.exposedOf(f) {
			tracked = append(tracked, e.Target)
		}
		from = words(from, f.except("saddr", in.amongPods(tracked)))
		c.add(fmt.Sprintf("iifname %q %s %s notrack accept", api.OverlayInterface, from, peer))
		arriving = append(arriving, words(to, f.except("daddr", in.protected()), "notrack"))
	}
	c.add(fmt.Sprintf("iifname != %q accept", in.device()))
	c.add(arriving...)
	for _, f := range families() {
		// Before DNAT: what goes to an IP object has another address here, and passes.
		if protected, ok := f.match("daddr", hosts(in.protected())); ok {
			c.add(protected + " tcp flags syn / syn,ack drop")
		}
	}
	for _, f := range families() {
		same := in.peers()
		for _, r := range in.remote(f) {
			if r.Remote == r.Local {
				same = append(same, r.Local)
				continue
			}
			c.add(fmt.Sprintf("%s saddr %s %s accept", f.name, r.Remote, f.rewrite("saddr", r.Local)))
		}
		if sources, ok := f.match("saddr", same); ok {
			c.add(sources + " accept")
		}
	}
	c.add("drop")
	return c
}

// toPeer translates remapped addresses back into the peer's own, after all other chains (300 comes
// after all NAT, at most 100 + 10). ICMP errors from nodes and routers belong to no connection NAT
// knows. Their source becomes the address that stands for sources that are not announced.
func (in GatewayStateInput) toPeer() chain {
	c := chain{name: "to-peer", base: "filter hook postrouting priority 300"}
	c.add(fmt.Sprintf("oifname != %q accept", in.device()))
	own := families()[0].of(in.External)
	if announced, ok := families()[0].match("saddr !=", in.announced()); ok && len(own) > 0 {
		c.add(fmt.Sprintf("icmp type { destination-unreachable, time-exceeded } %s ip saddr set %s",
			announced, First(own[0])))
	}
	for _, f := range families() {
		for _, r := range in.remote(f) {
			if r.Remote != r.Local {
				c.add(fmt.Sprintf("%s daddr %s %s accept", f.name, r.Local, f.rewrite("daddr", r.Remote)))
			}
		}
	}
	return c
}

// announced returns the sources that the peer accepts.
func (in GatewayStateInput) announced() []netip.Prefix {
	return slices.Concat(in.Pods, in.External, in.own())
}

// own returns the local addresses in the tunnels, peers those of the peer.
func (in GatewayStateInput) own() (out []netip.Prefix) {
	for n := range in.tunnels() {
		own, _ := in.ends(n)
		out = append(out, host(own.Addr()))
	}
	return out
}

func (in GatewayStateInput) peers() (out []netip.Prefix) {
	for n := range in.tunnels() {
		_, peer := in.ends(n)
		out = append(out, host(peer))
	}
	return out
}

// quotes returns the translations of addresses in ICMP errors. They cover the peer's address in
// packets that did not reach the peer, and in packets of the peer that did not arrive here.
func (in GatewayStateInput) quotes() []Quote {
	var out []Quote
	for _, r := range in.remote(families()[0]) {
		if r.Remote != r.Local {
			dev := in.device()
			out = append(out,
				Quote{Device: dev, Inbound: true, From: r.Remote, To: r.Local},
				Quote{Device: dev, From: r.Local, To: r.Remote})
		}
	}
	return out
}

// remote returns the mappings of the peer's CIDRs of a family.
func (in GatewayStateInput) remote(f family) netv1beta1.Mappings {
	return slices.DeleteFunc(slices.Clone(in.Remote), func(r netv1beta1.Mapping) bool { return is6(r.Remote) != f.six })
}

// exposed translates the external addresses of IP objects to their targets.
func (in GatewayStateInput) exposed() chain {
	c := chain{name: "exposed", base: "nat hook prerouting priority dstnat"}
	for _, f := range families() {
		exposed := in.exposedOf(f)
		targets := make([]mapped, len(exposed))
		for i, e := range exposed {
			targets[i] = mapped{e.External, e.Target}
		}
		if len(targets) > 0 {
			c.add(fmt.Sprintf("iifname %q dnat %s to %s daddr map %s", in.device(), f.name, f.name, mapping(targets)))
		}
	}
	return c
}

// exposures maps the external addresses to their targets.
func (in GatewayStateInput) exposures() map[netip.Addr]netip.Addr {
	targets := make(map[netip.Addr]netip.Addr, len(in.Exposed))
	for _, e := range in.Exposed {
		targets[e.External] = e.Target
	}
	return targets
}

// translatable returns the IP objects whose two addresses are of the same family, sorted by external
// address. Of objects with the same external address it returns the one with the highest target.
func translatable(list []Exposed) []Exposed {
	list = slices.DeleteFunc(slices.Clone(list), func(e Exposed) bool { return e.External.Is6() != e.Target.Is6() })
	slices.SortFunc(list, func(a, b Exposed) int {
		return cmp.Or(a.External.Compare(b.External), b.Target.Compare(a.Target))
	})
	return slices.CompactFunc(list, func(a, b Exposed) bool { return a.External == b.External })
}

// exposedOf returns the IP objects of a family: IPv4 is sorted before IPv6.
func (in GatewayStateInput) exposedOf(f family) []Exposed {
	six := slices.IndexFunc(in.Exposed, func(e Exposed) bool { return e.External.Is6() })
	if six < 0 {
		six = len(in.Exposed)
	}
	if f.six {
		return in.Exposed[six:]
	}
	return in.Exposed[:six]
}

// sources translates the source of leaving packets to an address the other side can answer. The
// peer accepts announced addresses only. Pods keep theirs, targets of IP objects (also pods of
// other peers) get their external address, all others get the first external address.
func (in GatewayStateInput) sources() chain {
	c := chain{name: "sources", base: "nat hook postrouting priority srcnat"}
	for _, f := range families() {
		var masqueraded []netip.Addr
		for _, e := range in.exposedOf(f) {
			if e.Masquerade {
				masqueraded = append(masqueraded, e.External)
			}
		}
		if len(masqueraded) > 0 {
			c.add(fmt.Sprintf("iifname %q ct original %s daddr %s masquerade", in.device(), f.name,
				set(hosts(masqueraded))))
		}
	}
	c.add(fmt.Sprintf("oifname != %q accept", in.device()))
	for _, f := range families() {
		c.add(in.sourcesOf(f)...)
	}
	return c
}

func (in GatewayStateInput) sourcesOf(f family) []string {
	var out []string
	if keep, ok := f.match("saddr", slices.Concat(in.Pods, in.own())); ok {
		out = append(out, keep+" accept")
	}
	exposed := in.exposedOf(f)
	external := make([]mapped, len(exposed))
	for i, e := range exposed {
		external[i] = mapped{e.Target, e.External}
	}
	if len(external) > 0 {
		out = append(out, fmt.Sprintf("snat %s to %s saddr map %s", f.name, f.name, mapping(external)))
	}
	if own := f.of(in.External); len(own) > 0 {
		out = append(out, fmt.Sprintf("meta nfproto %s snat %s to %s", f.meta, f.name, First(own[0])))
	}
	return out
}

// forward limits what a peer reaches to pods of this cluster and IP objects. Nodes are excluded,
// even if their addresses lie in the pods' ranges, and so are protected pods. Protected pods
// receive the packets of their own connections. For TCP that is every packet, because from-peer
// drops those that open a connection; so another gateway can take over. For other protocols
// connection tracking decides. Before that, TCP segments are clamped to the longest packet of the
// tunnel, in both directions and by number: "rt mtu" would use the overlay's MTU for answers, which
// is larger.
//
// Packets for IP objects are dropped if they are for the overlay's port. If the target is a node, a
// frame of the peer would leave with this gateway's address, and the node would accept it as a
// frame of the gateway.
func (in GatewayStateInput) forward(longest int) chain {
	tunnel, ovl := in.device(), api.OverlayInterface
	c := chain{name: "forward", base: "filter hook forward priority filter", drop: true}
	headers := map[bool]int{false: 40, true: 60} // IP header + TCP header 20
	for _, f := range families() {
		c.add(fmt.Sprintf("meta nfproto %s tcp flags syn tcp option maxseg size set %d", f.meta,
			longest-headers[f.six]))
	}
	c.add(fmt.Sprintf("iifname %q oifname %q accept", ovl, tunnel))
	for _, f := range families() {
		pods, ok := f.match("daddr", in.Pods)
		if !ok {
			continue
		}
		pods = words(pods, f.except("daddr", append(in.nodesAmongPods(), in.protected()...)))
		c.add(fmt.Sprintf("iifname %q oifname %q %s accept", tunnel, ovl, pods))
		if protected, some := f.match("daddr", hosts(in.protected())); some {
			c.add(fmt.Sprintf("iifname %q oifname %q %s meta l4proto tcp accept", tunnel, ovl, protected))
		}
	}
	c.add(
		fmt.Sprintf("iifname %q ct status dnat udp dport %d drop", tunnel, in.Port),
		"ct state established,related accept",
		fmt.Sprintf("iifname %q ct status dnat accept", tunnel),
	)
	return c
}

// protected returns the protected addresses in the pods' CIDRs; other addresses are not reachable
// anyway.
func (in GatewayStateInput) protected() []netip.Addr { return in.amongPods(in.Protected) }

// nodesAmongPods returns the addresses of nodes that lie in the pods' CIDRs.
func (in GatewayStateInput) nodesAmongPods() []netip.Addr {
	var outer []netip.Addr
	for _, n := range in.Nodes {
		outer = append(outer, n.Outer)
	}
	return in.amongPods(outer)
}

// amongPods returns the addresses that lie in the pods' CIDRs.
func (in GatewayStateInput) amongPods(list []netip.Addr) []netip.Addr {
	outside := func(a netip.Addr) bool { return !netv1beta1.Ranges(in.Pods).Contains(a) }
	return slices.DeleteFunc(slices.Clone(list), outside)
}

// input limits packets from peer and nodes to the gateway itself to pings. All other packets, such
// as the outer frames of their traffic, are accepted by the first rule.
func (in GatewayStateInput) input() chain {
	c := chain{name: "input", base: "filter hook input priority filter"}
	c.add(fmt.Sprintf("iifname != %q accept", api.InterfacePrefix+"*"))
	for _, dev := range []string{in.device(), api.OverlayInterface} {
		from := fmt.Sprintf("iifname %q ", dev)
		c.add(
			from+"ct state established,related accept",
			from+"icmp type { echo-reply, echo-request } accept",
			from+"icmpv6 type { echo-request, echo-reply } accept",
		)
		if dev == in.device() {
			c.add(from + fmt.Sprintf("udp dport %d accept", api.PingPort))
		}
		c.add(from + "drop")
	}
	return c
}
