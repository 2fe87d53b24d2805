// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"fmt"
	"maps"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/liqo-go/liqo/network/plan"
)

// forget ends connections to external addresses that have another target now, or none: connection tracking asks the
// nft table for new connections only, and those that go on, as of UDP, would have the old target for ever.
func (d *Dataplane) forget() error {
	x := d.exposure
	if d.exposed != nil && maps.Equal(d.exposed, x.Targets) || len(x.Targets)+len(x.Ranges) == 0 {
		return nil // nodes have no external addresses, and too many connections to list them all
	}
	stale := staleFlows{d.exposed, x}
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, stale); err != nil {
			return fmt.Errorf("forget connections to external addresses: %w", err)
		}
	}
	d.exposed = x.Targets
	return nil
}

// staleFlows match connections to external addresses, and those their targets made, which have them as sources.
type staleFlows struct {
	before map[netip.Addr]netip.Addr
	now    plan.Exposure
}

func (s staleFlows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	to, back := flow.Forward, flow.Reverse
	return s.now.Stale(s.before, address(to.DstIP), address(back.SrcIP)) ||
		s.now.Stale(s.before, address(back.DstIP), address(to.SrcIP))
}
