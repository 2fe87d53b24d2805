// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/liqo-go/liqo/api"
)

// Watch calls changed when one of our devices or the routes of our table or of users' change, and heard when
// one of the pods Here was asked for last is heard of or a pod gets a device of its own, until the context ends. Rules and nft tables are not
// watched: on a node kube-proxy writes them all the time.
func (d *Dataplane) Watch(ctx context.Context, changed, heard func()) error {
	for ctx.Err() == nil {
		if err := d.watch(ctx, changed, heard); err != nil {
			return err
		}
		heard() // the kernel dropped messages when there were too many: anything may have changed
	}
	return nil
}

// watch ends without an error when the kernel ends a subscription.
func (d *Dataplane) watch(ctx context.Context, changed, heard func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	links, routes, neighbors := make(chan netlink.LinkUpdate, 64), make(chan netlink.RouteUpdate, 64), make(chan netlink.NeighUpdate, 64)
	if err := netlink.LinkSubscribe(links, ctx.Done()); err != nil {
		return fmt.Errorf("watch links: %w", err)
	}
	if err := netlink.RouteSubscribe(routes, ctx.Done()); err != nil {
		return fmt.Errorf("watch routes: %w", err)
	}
	if err := netlink.NeighSubscribe(neighbors, ctx.Done()); err != nil {
		return fmt.Errorf("watch neighbours: %w", err)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case u, ok := <-links:
			if !ok {
				return nil
			}
			if strings.HasPrefix(u.Attrs().Name, api.InterfacePrefix) {
				changed()
			}
		case u, ok := <-routes:
			if !ok {
				return nil
			}
			if isOurs(u.Table) {
				changed()
			} else if u.Type == unix.RTM_NEWROUTE && toPod(u.Route) {
				heard()
			}
		case u, ok := <-neighbors:
			if !ok {
				return nil
			}
			if d.news(u.Neigh) {
				heard()
			}
		}
	}
}

// news tells whether a neighbour is a pod of which another Ethernet address was known, or none.
func (d *Dataplane) news(n netlink.Neigh) bool {
	heard := d.heard.Load()
	if heard == nil {
		return false
	}
	macs, here := (*heard)[address(n.IP)]
	return here && slices.ContainsFunc(reachable([]netlink.Neigh{n})[address(n.IP)], func(mac string) bool { return !slices.Contains(macs, mac) })
}
