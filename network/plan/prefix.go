// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides the state of the kernel of a node or of a gateway's pod: objects become a
// State, and two States become the Changes between them. It reads and writes nothing.
//
// It is linked into the processes that carry traffic, so it contains no plans of controllers: those
// are in network/objects/plan. Start at NodeState and GatewayState; members.go holds what both have
// in common.
package plan

import "net/netip"

// First returns the first address of a prefix, with host bits zero. In an external CIDR, this
// address stands for sources that a cluster does not announce.
func First(p netip.Prefix) netip.Addr { return p.Masked().Addr() }

// Last returns the highest address of a prefix.
func Last(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}
