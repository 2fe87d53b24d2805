// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"net"

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
				s.Neighbors = append(s.Neighbors, plan.Neighbor{Device: name, Addr: address(n.IP), MAC: n.HardwareAddr.String()})
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
		return gone(err)
	}
	return gone(d.netlink.NeighDel(n))
}

// routes reads our routing table.
func (d *Dataplane) routes() ([]plan.Route, error) {
	names := map[int]string{}
	var out []plan.Route
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		found, err := d.netlink.RouteListFiltered(family, &netlink.Route{Table: plan.RouteTable}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			if r.Dst == nil {
				continue
			}
			if _, ok := names[r.LinkIndex]; !ok {
				l, err := d.netlink.LinkByIndex(r.LinkIndex)
				if err != nil {
					return nil, err
				}
				names[r.LinkIndex] = l.Attrs().Name
			}
			out = append(out, plan.Route{Device: names[r.LinkIndex], To: prefix(r.Dst), Via: address(r.Gw), MTU: r.MTU})
		}
	}
	return out, nil
}

func (d *Dataplane) route(r *plan.Route) (*netlink.Route, error) {
	l, err := d.netlink.LinkByName(r.Device)
	if err != nil {
		return nil, err
	}
	route := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(r.To), Table: plan.RouteTable, MTU: r.MTU, Protocol: unix.RTPROT_STATIC}
	if r.Via.IsValid() {
		route.Gw = r.Via.AsSlice()
		route.SetFlag(netlink.FLAG_ONLINK)
	} else {
		route.Scope = netlink.SCOPE_LINK
	}
	return route, nil
}

func (d *Dataplane) writeRoute(_, new *plan.Route) error {
	r, err := d.route(new)
	if err != nil {
		return err
	}
	return d.netlink.RouteReplace(r)
}

func (d *Dataplane) deleteRoute(old, _ *plan.Route) error {
	r, err := d.route(old)
	if err != nil {
		return gone(err)
	}
	return gone(d.netlink.RouteDel(r))
}

// rules reads what leads to our routing table.
func (d *Dataplane) rules() ([]plan.Rule, error) {
	var out []plan.Rule
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		found, err := d.netlink.RuleListFiltered(family, &netlink.Rule{Table: plan.RouteTable}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			out = append(out, plan.Rule{IPv6: family == unix.AF_INET6, Priority: r.Priority, Forwarded: r.Invert && r.IifName == "lo"})
		}
	}
	return out, nil
}

func rule(r *plan.Rule) *netlink.Rule {
	n := netlink.NewRule()
	n.Family, n.Priority, n.Table = familyOf(r.IPv6), r.Priority, plan.RouteTable
	if r.Forwarded {
		n.Invert, n.IifName = true, "lo"
	}
	return n
}

func (d *Dataplane) writeRule(_, new *plan.Rule) error  { return d.netlink.RuleAdd(rule(new)) }
func (d *Dataplane) deleteRule(old, _ *plan.Rule) error { return gone(d.netlink.RuleDel(rule(old))) }

func familyOf(six bool) int {
	if six {
		return unix.AF_INET6
	}
	return unix.AF_INET
}
