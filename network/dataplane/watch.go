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

// Watch runs until the context ends. It calls changed when our devices, or routes of our tables or
// users', change. It calls podMoved when a pod of the latest Here gets a new MAC address, or when a
// route to a single pod is added. It ignores rules and nft tables, which kube-proxy writes often.
func (d *Dataplane) Watch(ctx context.Context, changed, podMoved func()) error {
	for ctx.Err() == nil {
		if err := d.watch(ctx, changed, podMoved); err != nil {
			return err
		}
		podMoved() // the kernel dropped messages, so anything may have changed
	}
	return nil
}

// watch returns nil when the kernel ends a subscription.
func (d *Dataplane) watch(ctx context.Context, changed, podMoved func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	links, routes := make(chan netlink.LinkUpdate, 64), make(chan netlink.RouteUpdate, 64)
	neighbors := make(chan netlink.NeighUpdate, 64)
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
				podMoved()
			}
		case u, ok := <-neighbors:
			if !ok {
				return nil
			}
			if d.hasNewMAC(u.Neigh) {
				podMoved()
			}
		}
	}
}

// hasNewMAC reports whether a neighbour is a pod of the latest Here with a MAC address not known then.
func (d *Dataplane) hasNewMAC(n netlink.Neigh) bool {
	known := d.lastHere.Load()
	if known == nil {
		return false
	}
	pod := address(n.IP)
	macs, here := (*known)[pod]
	isNew := func(mac string) bool { return !slices.Contains(macs, mac) }
	return here && slices.ContainsFunc(reachable([]netlink.Neigh{n})[pod], isNew)
}
