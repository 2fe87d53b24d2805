// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// forget ends what connection tracking knows of external addresses that lead elsewhere or nowhere now: it asks the table
// for new connections only, and those that go on, as of UDP, would have the old target for ever.
func (d *Dataplane) forget() error {
	moved := map[netlink.InetFamily]movedAddresses{}
	for _, a := range d.moved {
		family := netlink.InetFamily(familyOf(a.Is6()))
		if moved[family] == nil {
			moved[family] = movedAddresses{}
		}
		moved[family][a] = true
	}
	for family, addresses := range moved {
		if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, addresses); err != nil {
			return fmt.Errorf("forget connections to external addresses: %w", err)
		}
	}
	d.moved = nil
	return nil
}

// movedAddresses match connections to them, and those their targets made, which have them as sources.
type movedAddresses map[netip.Addr]bool

func (m movedAddresses) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	return m[address(flow.Forward.DstIP)] || m[address(flow.Reverse.DstIP)]
}
