// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/liqo-go/liqo/api"
)

// ipvsDevice is the device to which kube-proxy assigns the addresses of all Services in IPVS mode.
// The service CIDR covers them.
const ipvsDevice = "kube-ipvs0"

// Local returns the addresses of this host, each with the prefix length of its network, and those of
// its default gateways. It omits the overlay device.
func (d *Dataplane) Local() ([]netip.Prefix, error) {
	skip := map[int]bool{}
	for _, name := range []string{api.OverlayInterface, ipvsDevice} {
		l, err := d.netlink.LinkByName(name)
		if ignoreMissing(err) != nil {
			return nil, fmt.Errorf("read link %s: %w", name, err)
		}
		if err == nil {
			skip[l.Attrs().Index] = true
		}
	}
	addrs, err := d.netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var out []netip.Prefix
	for _, a := range addrs {
		if skip[a.LinkIndex] {
			continue
		}
		out = append(out, prefix(a.IPNet))
		if a.Peer != nil { // the prefix length belongs to the peer's address
			out = append(out, prefix(a.Peer))
		}
	}
	routes, err := d.netlink.RouteList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst != nil && prefix(r.Dst).Bits() != 0 {
			continue
		}
		gateways := []net.IP{r.Gw}
		for _, hop := range r.MultiPath {
			gateways = append(gateways, hop.Gw)
		}
		for _, ip := range gateways {
			if a := address(ip); a.IsValid() {
				out = append(out, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	return out, nil
}
