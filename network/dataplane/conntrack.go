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

// deleteStaleFlows deletes conntrack entries of external addresses whose target changed or is gone.
// The nft table translates only new connections: without this, UDP flows would keep the old target.
func (d *Dataplane) deleteStaleFlows() error {
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

// staleFlows matches stale connections to external addresses, and connections from their targets,
// which have external addresses as sources.
type staleFlows struct {
	before map[netip.Addr]netip.Addr
	now    plan.Exposure
}

func (s staleFlows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	to, back := flow.Forward, flow.Reverse
	return s.now.Stale(s.before, address(to.DstIP), address(back.SrcIP)) ||
		s.now.Stale(s.before, address(back.DstIP), address(to.SrcIP))
}
