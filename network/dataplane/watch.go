// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/network/plan"
)

// Watch runs until the context ends. It calls changed when our devices, or routes of our tables or
// users', change, unless Apply changed the routes. It calls podMoved when a pod of the latest Here gets
// a new MAC address, or when a route to a single pod is added. It ignores rules and nft tables, which
// kube-proxy writes often.
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
				if !d.echoes.take(keyOf(routeFound(u.Route, u.Family))) {
					changed()
				}
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

// echoes counts changes of routes by this process, so that notifications of them are told from those
// of changes by others.
type echoes struct {
	mu     sync.Mutex
	counts map[routeKey]int
}

// routeKey identifies a route by its table, 0 = ours, and its destination.
type routeKey struct {
	table int
	to    netip.Prefix
}

func keyOf(r plan.Route) routeKey { return routeKey{r.Table, r.To} }

// expect makes a change of a route that the kernel notifies of unless it fails.
func (e *echoes) expect(r *plan.Route, change func() error) error {
	e.mu.Lock()
	if e.counts == nil {
		e.counts = map[routeKey]int{}
	}
	e.counts[keyOf(*r)]++
	e.mu.Unlock()
	err := change()
	if err != nil {
		e.take(keyOf(*r))
	}
	return err
}

// take reports whether a notification is of a change of ours that was not notified of before.
func (e *echoes) take(k routeKey) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.counts[k]
	if n > 1 {
		e.counts[k]--
	} else {
		delete(e.counts, k)
	}
	return n > 0
}

// reset forgets changes that the kernel did not notify of: those that changed nothing.
func (e *echoes) reset() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counts = nil
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
