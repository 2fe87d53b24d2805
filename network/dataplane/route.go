// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/liqo-go/liqo/network/plan"
)

// observeEntries reads the static entries of the overlay device.
func (d *Dataplane) observeEntries(s *plan.State, l netlink.Link) error {
	index, name := l.Attrs().Index, l.Attrs().Name
	forwards, err := d.forwards(index, name)
	if err != nil {
		return err
	}
	s.Forwards = append(s.Forwards, forwards...)
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		neighbors, err := d.netlink.NeighList(index, family)
		if err != nil {
			return err
		}
		for _, n := range neighbors {
			if n.State == netlink.NUD_PERMANENT {
				entry := plan.Neighbor{Device: name, Addr: address(n.IP), MAC: n.HardwareAddr.String()}
				s.Neighbors = append(s.Neighbors, entry)
			}
		}
	}
	return nil
}

func (d *Dataplane) neighbor(x *plan.Neighbor) (*netlink.Neigh, error) {
	l, err := d.netlink.LinkByName(x.Device)
	if err != nil {
		return nil, err
	}
	mac, err := net.ParseMAC(x.MAC)
	return &netlink.Neigh{
		LinkIndex: l.Attrs().Index, Family: familyOf(x.Addr.Is6()), State: netlink.NUD_PERMANENT,
		IP: x.Addr.AsSlice(), HardwareAddr: mac,
	}, err
}

func (d *Dataplane) writeNeighbor(_, new *plan.Neighbor) error {
	n, err := d.neighbor(new)
	if err != nil {
		return err
	}
	return d.netlink.NeighSet(n)
}

func (d *Dataplane) deleteNeighbor(old, _ *plan.Neighbor) error {
	n, err := d.neighbor(old)
	if err != nil {
		return ignoreMissing(err)
	}
	return ignoreMissing(d.netlink.NeighDel(n))
}

// routes returns the routes of our routing tables and of users'. It filters them one by one, as the
// namespace may have a route for each pod.
func (d *Dataplane) routes() ([]plan.Route, error) {
	var out []plan.Route
	var links []int // the device of each route, by index
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		take := func(r netlink.Route) (goOn bool) {
			if isOurs(r.Table) {
				if r.Type == unix.RTN_THROW {
					r.LinkIndex = 0 // IPv6 names the loopback device
				}
				out, links = append(out, routeFound(r, family)), append(links, r.LinkIndex)
			}
			return true
		}
		// The kernel lists the routes of all tables even if one is named; the library filters.
		all := &netlink.Route{Table: unix.RT_TABLE_UNSPEC}
		if err := d.netlink.RouteListFilteredIter(family, all, netlink.RT_FILTER_TABLE, take); err != nil {
			return nil, err
		}
	}
	names := map[int]string{0: ""}
	for i, link := range links {
		if _, ok := names[link]; !ok {
			l, err := d.netlink.LinkByIndex(link)
			if err != nil {
				return nil, err
			}
			names[link] = l.Attrs().Name
		}
		out[i].Device = names[link]
	}
	return out, nil
}

// isOurs reports whether a routing table is ours or a user's.
func isOurs(table int) bool { return plan.IsOwnTable(table) || plan.IsUserTable(table) }

// routeFound converts a route to plan.Route, without its device.
func routeFound(r netlink.Route, family int) plan.Route {
	out := plan.Route{To: prefix(r.Dst), Via: address(r.Gw), MTU: r.MTU, Throw: r.Type == unix.RTN_THROW}
	if r.Dst == nil {
		out.To = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if family == unix.AF_INET6 {
			out.To = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
	}
	if r.Table != plan.RouteTable {
		out.Table = r.Table
	}
	if plan.IsOwnTable(r.Table) {
		return out
	}
	out.Source, out.OnLink = address(r.Src), r.Flags&int(netlink.FLAG_ONLINK) != 0
	if family == unix.AF_INET {
		out.Scope = scopeName(r.Scope)
	}
	return out
}

func (d *Dataplane) route(r *plan.Route) (*netlink.Route, error) {
	route := &netlink.Route{Dst: ipNet(r.To), Table: r.Table, MTU: r.MTU, Protocol: unix.RTPROT_STATIC}
	if r.Device != "" {
		l, err := d.netlink.LinkByName(r.Device)
		if err != nil {
			return nil, err
		}
		route.LinkIndex = l.Attrs().Index
	}
	if r.Via.IsValid() {
		route.Gw = r.Via.AsSlice()
	}
	if plan.IsUserTable(r.Table) {
		route.Scope = scope(r.Scope)
		if r.Source.IsValid() {
			route.Src = r.Source.AsSlice()
		}
		if r.OnLink {
			route.SetFlag(netlink.FLAG_ONLINK)
		}
		return route, nil
	}
	if r.Table == 0 {
		route.Table = plan.RouteTable
	}
	if r.Throw {
		route.Type = unix.RTN_THROW
		return route, nil
	}
	if r.Via.IsValid() {
		route.SetFlag(netlink.FLAG_ONLINK)
	} else {
		route.Scope = netlink.SCOPE_LINK
	}
	return route, nil
}

func (d *Dataplane) writeRoute(old, new *plan.Route) error {
	if old != nil {
		delete(d.refusedRoutes, old.String())
	}
	r, err := d.route(new)
	if err == nil {
		err = d.echoes.expect(new, func() error { return d.netlink.RouteReplace(r) })
	}
	if plan.IsUserTable(new.Table) {
		d.refusedRoutes.record(*new, err)
		return nil
	}
	return err
}

func (d *Dataplane) deleteRoute(old, _ *plan.Route) error {
	delete(d.refusedRoutes, old.String())
	r, err := d.route(old)
	if err != nil {
		return ignoreMissing(err)
	}
	return ignoreMissing(d.echoes.expect(old, func() error { return d.netlink.RouteDel(r) }))
}

// scopeName returns the name of a scope as users write it; "" is global.
func scopeName(s netlink.Scope) string {
	if s == netlink.SCOPE_UNIVERSE {
		return ""
	}
	return s.String()
}

// scope returns the scope with a name; unknown names are global.
func scope(name string) netlink.Scope {
	scopes := []netlink.Scope{netlink.SCOPE_SITE, netlink.SCOPE_LINK, netlink.SCOPE_HOST, netlink.SCOPE_NOWHERE}
	for _, s := range scopes {
		if s.String() == name {
			return s
		}
	}
	return netlink.SCOPE_UNIVERSE
}

// rules returns the rules that select our routing tables or those of users.
func (d *Dataplane) rules() ([]plan.Rule, error) {
	four, err := d.rulesOf(unix.AF_INET)
	if err != nil {
		return nil, err
	}
	six, err := d.rulesOf(unix.AF_INET6)
	return append(four, six...), err
}

// rulesOf returns the rules of a family; none if the kernel does not support it, as for IPv6 when
// booted with ipv6.disable=1. Listing routes or neighbours does not fail there.
func (d *Dataplane) rulesOf(family int) ([]plan.Rule, error) {
	found, err := d.netlink.RuleList(family)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []plan.Rule
	for _, r := range found {
		if !isOurs(r.Table) {
			continue
		}
		rule := plan.Rule{
			IPv6: family == unix.AF_INET6, Priority: r.Priority,
			Forwarded: r.Invert && r.IifName == "lo", ICMP: r.IPProto == icmp(family),
		}
		if r.Table == plan.RouteTable && r.Invert && r.Mark != 0 {
			rule.Unmarked = r.Mark
		}
		if r.Table != plan.RouteTable {
			rule.Table, rule.From, rule.To = r.Table, prefix(r.Src), prefix(r.Dst)
			rule.In, rule.Out, rule.Mark = r.IifName, r.OifName, r.Mark
		}
		out = append(out, rule)
	}
	return out, nil
}

func rule(r *plan.Rule) *netlink.Rule {
	n := netlink.NewRule()
	n.Family, n.Priority, n.Table = familyOf(r.IPv6), r.Priority, plan.RouteTable
	if r.Forwarded {
		n.Invert, n.IifName = true, "lo"
	}
	if r.ICMP {
		n.IPProto = icmp(n.Family)
	}
	if r.Unmarked != 0 {
		n.Invert, n.Mark = true, r.Unmarked
	}
	if r.Table == 0 {
		return n
	}
	n.Table, n.IifName, n.OifName, n.Mark = r.Table, r.In, r.Out, r.Mark
	if r.From.IsValid() {
		n.Src = ipNet(r.From)
	}
	if r.To.IsValid() {
		n.Dst = ipNet(r.To)
	}
	return n
}

// icmp returns the number of the ICMP protocol of a family.
func icmp(family int) int {
	if family == unix.AF_INET6 {
		return unix.IPPROTO_ICMPV6
	}
	return unix.IPPROTO_ICMP
}

func (d *Dataplane) writeRule(_, new *plan.Rule) error {
	err := d.netlink.RuleAdd(rule(new))
	if errors.Is(err, unix.EEXIST) { // created since the kernel was read
		err = nil
	}
	if plan.IsUserTable(new.Table) {
		d.refusedRules.record(*new, err)
		return nil
	}
	return err
}

func (d *Dataplane) deleteRule(old, _ *plan.Rule) error {
	delete(d.refusedRules, old.String())
	return ignoreMissing(d.netlink.RuleDel(rule(old)))
}

func familyOf(six bool) int {
	if six {
		return unix.AF_INET6
	}
	return unix.AF_INET
}
