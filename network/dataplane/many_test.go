// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/plan"
)

// BenchmarkManyGateways is a look at a node with that many gateways on it, of as many peers.
func BenchmarkManyGateways(b *testing.B) {
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := newCluster(b, space.NewInternet(b), "a", 1, "10.10.1.200")
			gateways := c.crowd(b, n)
			look := func() {
				var ports map[netip.Addr]plan.Port
				var err error
				c.Node.Do(func() { ports, err = c.node.plane.Ports(gateways) })
				if err != nil || len(ports) != n {
					b.Fatalf("%d ports, error %v", len(ports), err)
				}
				for i := range c.node.in.Gateways {
					c.node.in.Gateways[i].Port = ports[c.node.in.Gateways[i].Outer]
				}
			}
			look()
			c.node.settle(b)
			for b.Loop() {
				look()
				var have plan.State
				var err error
				c.Node.Do(func() { have, err = c.node.plane.Observe(context.Background(), "eth0") })
				if err != nil {
					b.Fatal(err)
				}
				if changes := plan.Diff(have, c.node.plan(c.node.in)); !changes.Empty() {
					b.Fatalf("a look finds\n%s", changes)
				}
			}
		})
	}
}

// crowd puts gateways on the node, of which there is only what the node sees: a port of the bridge
// and what bridge and neighbours learnt.
func (c *cluster) crowd(t testing.TB, n int) []netip.Addr {
	var links, fdb strings.Builder
	var all []netip.Addr
	c.node.in.Gateways = nil
	for i := range n {
		addr := netip.MustParseAddr(fmt.Sprintf("10.10.1.%d", 10+i))
		mac := fmt.Sprintf("02:00:00:01:00:%02x", i)
		fmt.Fprintf(&links, "link add gw%d type veth peer name pod%d\nlink set gw%d master cni0 up\nlink set pod%d up\nneigh add %s lladdr %s dev cni0 nud stale\n", i, i, i, i, addr, mac)
		fmt.Fprintf(&fdb, "fdb add %s dev gw%d master dynamic\n", mac, i)
		c.node.in.Gateways = append(c.node.in.Gateways, plan.Member{
			Name: fmt.Sprint(i), Outer: addr, Overlay: netip.MustParseAddr(fmt.Sprintf("10.80.192.%d", i+1)), MTU: 1340,
			CIDRs: prefixes(fmt.Sprintf("10.%d.0.0/16", 100+i), fmt.Sprintf("11.%d.0.0/16", i)),
		})
		all = append(all, addr)
	}
	c.Node.Run(links.String(), "ip", "-batch", "-")
	c.Node.Run(fdb.String(), "bridge", "-batch", "-")
	return all
}
