// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/liqo-go/liqo/api"
)

const (
	// OverlayVNI distinguishes Liqo's frames from those of other VXLANs on the port: "lqo" in
	// ASCII.
	OverlayVNI = 0x6c716f
	// RouteTable is the number of Liqo's routing table, on nodes and in gateways.
	RouteTable = 6091
	// RulePriority is the priority of Liqo's rule. It comes before those of CNIs that route by
	// source (Calico's WireGuard 99, Cilium 100 and up, AWS VPC 512 and up) and after Cilium's
	// proxy (9).
	RulePriority = 90
	// looseReversePath accepts sources that any route covers. The kernel takes the larger of this
	// value and net.ipv4.conf.all.rp_filter, so strict (1) there has no effect on Liqo.
	looseReversePath = 2
)

// Overheads are the bytes a VXLAN frame adds to a packet: outer IP header, UDP 8, VXLAN 8, inner
// Ethernet 14.
const (
	overlayOverhead4 = 20 + 8 + 8 + 14
	overlayOverhead6 = 40 + 8 + 8 + 14
)

// Member is one end of the overlay: a node or a gateway.
type Member struct {
	Name string
	// Outer is the destination of its frames: the address of the node or of the gateway's pod.
	// Unspecified (0.0.0.0) = the gateway's pod is gone, and its packets are lost.
	Outer netip.Addr
	// Overlay is its address in the internal CIDR; invalid = not assigned yet.
	Overlay netip.Addr
	// Port is the port that its frames are sent to directly, bypassing a bridge of this host; the
	// zero value = there is no such bridge.
	Port Port
	// Here reports whether the member is a pod of this node. MACs are then its Ethernet addresses;
	// none = not known yet.
	Here bool
	MACs []string
	// CIDRs are the ranges behind the member: the pods of a node, or the remapped ranges of a
	// gateway's peer.
	CIDRs []netip.Prefix
	// MTU is the MTU of the path through the member, in bytes; 0 = that of the overlay device.
	MTU int
}

// ready reports whether a member can be part of the overlay.
func (m Member) ready() bool { return m.Overlay.IsValid() && m.Outer.IsValid() }

// hasOuter reports whether a member has an outer address. If a gateway's pod is gone, its former
// address may belong to another pod.
func (m Member) hasOuter() bool { return m.Outer.IsValid() && !m.Outer.IsUnspecified() }

// Underlay is the device that carries the frames of the overlay.
type Underlay struct {
	Device string
	// MTU is in bytes.
	MTU int
}

// joinOverlay joins a member to others: it returns the device, its address, the entries for the
// others and the routes to the ranges behind them.
func joinOverlay(self Member, others []Member, under Underlay, port int) State {
	if !self.ready() {
		return State{}
	}
	dev := api.OverlayInterface
	s := State{
		Overlays: []Overlay{{
			Name: dev, VNI: OverlayVNI, Port: port, Local: self.Outer,
			MAC: overlayMAC(self.Overlay), MTU: under.MTU - overlayOverhead(self.Outer),
		}},
		Settings: deviceSettings(dev),
	}
	six := slices.ContainsFunc(others, func(m Member) bool { return slices.ContainsFunc(m.CIDRs, is6) })
	for _, a := range inFamilies(self.Overlay, six) {
		s.Addresses = append(s.Addresses, Address{Device: dev, Prefix: host(a)})
	}
	s.Forwards, s.Neighbors = slices.Grow(s.Forwards, len(others)), slices.Grow(s.Neighbors, len(others))
	// Most members need three routes: to the member and to each of two ranges. Callers append a few more.
	s.Routes = slices.Grow(s.Routes, 3*len(others)+16)
	for _, m := range others {
		s.lead(m, six)
	}
	return s
}

// distinct returns the members that are ready, ordered by overlay address. A member whose address
// is taken is left out, and so are CIDRs that are taken by another member or by the caller: each
// can have one route only. Members with an outer address of the other family are left out too. The
// device cannot reach them, and the kernel would refuse their entry with all that follow. It also
// returns all taken prefixes, including those of the returned members.
func distinct(self Member, taken []netip.Prefix, lists ...[]Member) ([]Member, prefixes) {
	var sorted []*Member // pointers, because members are large and there may be thousands
	ranges := 0
	for _, list := range lists {
		sorted = slices.Grow(sorted, len(list))
		for i := range list {
			sorted, ranges = append(sorted, &list[i]), ranges+len(list[i].CIDRs)
		}
	}
	slices.SortFunc(sorted, func(a, b *Member) int {
		return cmp.Or(a.Overlay.Compare(b.Overlay), strings.Compare(a.Name, b.Name))
	})
	known := prefixes{all: make(map[netip.Prefix]struct{}, 1+len(taken)+len(sorted)+ranges)}
	known.add(host(self.Overlay))
	for _, p := range taken {
		known.add(p)
	}
	out, kept := make([]Member, 0, len(sorted)), make([]netip.Prefix, 0, ranges)
	for _, m := range sorted {
		otherFamily := m.hasOuter() && self.Outer.IsValid() && m.Outer.Is4() != self.Outer.Is4()
		if !m.ready() || otherFamily || !known.add(host(m.Overlay)) {
			continue
		}
		from := len(kept)
		for _, p := range m.CIDRs {
			if known.add(p) {
				kept = append(kept, p)
			}
		}
		out = append(out, *m)
		out[len(out)-1].CIDRs = slices.Clip(kept[from:])
	}
	return out, known
}

// prefixes is a set of prefixes in which addresses are looked up.
type prefixes struct {
	all     map[netip.Prefix]struct{}
	lengths []int // of the prefixes, each once
}

// add adds a prefix and reports whether it is new.
func (s *prefixes) add(p netip.Prefix) bool {
	before := len(s.all)
	s.all[p] = struct{}{}
	if !slices.Contains(s.lengths, p.Bits()) {
		s.lengths = append(s.lengths, p.Bits())
	}
	return len(s.all) > before
}

// contain reports whether an address lies in one of the prefixes, which are masked.
func (s prefixes) contain(a netip.Addr) bool {
	return slices.ContainsFunc(s.lengths, func(bits int) bool {
		p, err := a.Prefix(bits)
		_, ok := s.all[p]
		return err == nil && ok
	})
}

// lead adds the entries and routes for another member. A member without an outer address keeps its
// routes, so its packets are lost: another route would deliver them to a wrong receiver.
func (s *State) lead(m Member, six bool) {
	dev, mac := api.OverlayInterface, overlayMAC(m.Overlay)
	if m.hasOuter() {
		s.Forwards = append(s.Forwards, Forward{Device: dev, MAC: mac, Outer: m.Outer, Port: m.Port})
	}
	for _, a := range inFamilies(m.Overlay, six) {
		s.Neighbors = append(s.Neighbors, Neighbor{Device: dev, Addr: a, MAC: mac})
		s.Routes = append(s.Routes, Route{Device: dev, To: host(a)})
	}
	for _, c := range m.CIDRs {
		if via := inFamily(m.Overlay, is6(c)); via.IsValid() {
			s.Routes = append(s.Routes, Route{Device: dev, To: c.Masked(), Via: via, MTU: m.MTU})
		}
	}
}

// deviceSettings returns settings that let a device forward arriving packets, and accept sources
// that none of its routes covers.
func deviceSettings(device string) []Setting {
	return []Setting{
		{Device: device, Name: SettingForwarding, Value: 1},
		{Device: device, Name: SettingReversePath, Value: looseReversePath},
	}
}

// overlayMAC derives a locally administered MAC address from an overlay address: its last four
// bytes, which are all of an IPv4 address and the host part of an IPv6 one.
func overlayMAC(a netip.Addr) string {
	b := a.As16()
	return net.HardwareAddr{2, 0, b[12], b[13], b[14], b[15]}.String()
}

// inFamily returns the overlay address of a member in a family. Members have one address in the
// internal CIDR. The IPv6 next hop of a member with an IPv4 address embeds it into
// fd6c:6971:6f00::/96 (unique local, "liqo" in ASCII), so no second address is assigned. The
// reverse is impossible: the result is invalid for IPv4 in an IPv6 overlay.
func inFamily(a netip.Addr, six bool) netip.Addr {
	if a.Is4() != six {
		return a
	}
	if !six {
		return netip.Addr{}
	}
	b := [16]byte{0xfd, 0x6c, 0x69, 0x71, 0x6f}
	four := a.As4()
	copy(b[12:], four[:])
	return netip.AddrFrom16(b)
}

// inFamilies returns all addresses of a member; six adds IPv6.
func inFamilies(a netip.Addr, six bool) []netip.Addr {
	if six && a.Is4() {
		return []netip.Addr{a, inFamily(a, true)}
	}
	return []netip.Addr{a}
}

func overlayOverhead(outer netip.Addr) int {
	if outer.Is4() {
		return overlayOverhead4
	}
	return overlayOverhead6
}

// rulesFor returns rules that send packets to Liqo's table, for each family that has routes. If
// forwarded is set, only ICMP among the packets made in this namespace is sent there: errors about
// packets that arrived by these routes. On any other route, hosts that track connections would drop
// them as unknown.
func rulesFor(routes []Route, priority int, forwarded bool) []Rule {
	var out []Rule
	for _, six := range []bool{false, true} {
		if slices.ContainsFunc(routes, func(r Route) bool { return is6(r.To) == six }) {
			out = append(out, Rule{IPv6: six, Priority: priority, Forwarded: forwarded})
			if forwarded {
				out = append(out, Rule{IPv6: six, Priority: priority, ICMP: true})
			}
		}
	}
	return out
}

func is6(p netip.Prefix) bool { return p.Addr().Is6() }

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
