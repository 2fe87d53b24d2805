// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/liqo-go/liqo/api"
)

// tunnels returns the number of tunnels.
func (in GatewayStateInput) tunnels() int { return 1 + max(len(in.Tunnel.Listen), len(in.Tunnel.Dial)) }

// device returns the tunnel's name for rules, or a pattern for all tunnels if there are several.
func (in GatewayStateInput) device() string {
	if in.tunnels() > 1 {
		return api.TunnelInterface(0) + "*"
	}
	return api.TunnelInterface(0)
}

// ends returns the local and the peer's address in the n-th tunnel.
func (in GatewayStateInput) ends(n int) (own netip.Prefix, peer netip.Addr) {
	return FurtherEnds(in.Tunnel.Address, in.Tunnel.PeerAddress, n)
}

// addTunnel adds the n-th tunnel and, once its key is known, the peer. The peer may send from the
// addresses it announced and its own in the tunnel only, so it cannot impersonate others.
func (in GatewayStateInput) addTunnel(s *State, n int) {
	dev, t := api.TunnelInterface(n), in.Tunnel
	own, peer := in.ends(n)
	mtu := min(t.MTU, in.Under.MTU-tunnelOverhead)
	if len(s.Overlays) > 0 {
		mtu = min(mtu, s.Overlays[0].MTU)
	}
	if n > 0 {
		t.ListenPort = 0
	}
	if n > 0 && len(t.Listen) > 0 {
		t.ListenPort = t.Listen[n-1]
	}
	if n > 0 && t.Endpoint.IsValid() && len(t.Dial) > 0 {
		t.Endpoint = netip.AddrPortFrom(t.Endpoint.Addr(), uint16(t.Dial[n-1]))
	}
	s.Tunnels = append(s.Tunnels, Tunnel{Name: dev, MTU: mtu, ListenPort: t.ListenPort, TCP: t.TCP,
		PublicKey: t.PublicKey})
	s.Addresses = append(s.Addresses, Address{Device: dev, Prefix: own})
	s.Settings = append(s.Settings, deviceSettings(dev)...)
	if t.PeerKey == "" {
		return
	}
	p := Peer{Device: dev, PublicKey: t.PeerKey, Endpoint: t.Endpoint, AllowedIPs: []netip.Prefix{host(peer)}}
	for _, r := range in.Remote {
		p.AllowedIPs = append(p.AllowedIPs, r.Remote)
	}
	slices.SortFunc(p.AllowedIPs, netip.Prefix.Compare)
	p.AllowedIPs = slices.Compact(p.AllowedIPs)
	if t.Endpoint.IsValid() {
		p.Keepalive = keepalive
	}
	s.Peers = append(s.Peers, p)
}

// spread distributes connections over several tunnels. Each connection keeps its tunnel, chosen by
// addresses and ports. If that tunnel falls silent its connections use another, and the peer
// accepts them from any. The kernel's multipath routes need a setting that only the node can make
// (fib_multipath_hash_policy). A mark selects the tunnel; packets without one use the first tunnel
// that answers.
func (in GatewayStateInput) spread() chain {
	c := chain{name: "spread", base: "filter hook prerouting priority mangle"}
	if in.tunnels() == 1 {
		return c
	}
	var use []string
	for n := range in.tunnels() {
		if !slices.Contains(in.Tunnel.Silent, n) {
			use = append(use, fmt.Sprintf("%d : 0x%08x", len(use), n))
		}
	}
	among := ""
	if len(use) == 0 || len(use) == in.tunnels() {
		use = make([]string, in.tunnels())
	} else {
		among = " map { " + strings.Join(use, ", ") + " }"
	}
	for _, f := range families() {
		if to, ok := f.match("daddr", in.localRanges()); ok {
			c.add(fmt.Sprintf("iifname %q %s meta l4proto { tcp, udp } meta mark set jhash %s saddr . %s daddr . th "+
				"sport . th dport mod %d seed 0x%x%s",
				api.OverlayInterface, to, f.name, f.name, len(use), OverlayVNI, among))
		}
	}
	return c
}

// answering returns the first tunnel in which the peer answers; if there is none, the first of all.
func (in GatewayStateInput) answering() int {
	for n := range in.tunnels() {
		if !slices.Contains(in.Tunnel.Silent, n) {
			return n
		}
	}
	return 0
}

// spreadRules returns the rules that route packets marked by spread by the tables of the further
// tunnels.
func (in GatewayStateInput) spreadRules() []Rule {
	var out []Rule
	for n := 1; n < in.tunnels(); n++ {
		for _, f := range families() {
			if len(f.of(in.localRanges())) > 0 {
				out = append(out, Rule{IPv6: f.six, Priority: RulePriority, Table: spreadTable(n), Mark: uint32(n)})
			}
		}
	}
	return out
}

// spreadTable returns the routing table of the n-th tunnel: 0 = the common table.
func spreadTable(n int) int {
	if n == 0 {
		return 0
	}
	return RouteTable + n
}

// relayed redirects new flows of a server that hands over. Known flows stay in its tunnel.
func (in GatewayStateInput) relayed() chain {
	c := chain{name: "relayed", base: "nat hook prerouting priority dstnat - 1"}
	transport := "udp"
	if in.Tunnel.TCP {
		transport = "tcp"
	}
	for _, r := range in.Relays {
		c.add(fmt.Sprintf("iifname %q %s dport %d redirect to :%d", in.Under.Device, transport, r.Port, r.To))
	}
	return c
}
