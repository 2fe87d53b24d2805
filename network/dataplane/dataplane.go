// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package dataplane reads and writes the kernel state of the network namespace it is opened in:
// links, addresses, routes, rules, WireGuard and nft tables. It is the only package that touches
// the kernel, and it decides nothing: the desired state comes from network/plan.
//
//	Observe ─▶ plan.State ─▶ plan.Diff(have, want) ─▶ plan.Changes ─▶ Apply
//
// The package reads and changes only what Liqo owns: devices named liqo.ovl and liqo-tunnel…, our
// routing tables and the rules that select them, and the nft tables "inet liqo" and "ip liqo-quoted".
// It also manages the content of users: routing tables of a reserved range of numbers, and nft
// tables whose names have a reserved prefix.
package dataplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/liqo-go/liqo/network/plan"
)

// Options of a data plane.
type Options struct {
	// PrivateKey is the key of our tunnels; zero if there are none.
	PrivateKey wgtypes.Key
	// Userspace forces the implementation of WireGuard inside this process. Otherwise it is used
	// only if the kernel has none, and for tunnels over TCP.
	Userspace bool
	// Dial makes connections for tunnels over TCP. It is called at any time and from any thread;
	// nil dials in the network namespace of the process.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Dataplane accesses one network namespace. It is not safe for concurrent use, except Watch and the
// methods that read or dial a tunnel with its peer: Traffic, Calls, MTU, Implementation, DialAnew,
// Redial and HangUp. These never wait for nft.
type Dataplane struct {
	options Options
	netlink *netlink.Handle
	// tunnelling guards tunnels and dialled, and changes of peers.
	tunnelling sync.Mutex
	// tunnels holds the tunnels that run inside this process, by device.
	tunnels map[string]tunnel
	// dialled holds the configured endpoint of each peer, by device and public key. The endpoint in
	// use may differ, learnt from the peer's packets, and must not cause a write.
	dialled map[string]netip.AddrPort
	tables  nftTables
	// exposure belongs to the nft table written last. exposed holds the targets that tracked
	// connections to external addresses use; nil if not known, as after a restart.
	exposure plan.Exposure
	exposed  map[netip.Addr]netip.Addr
	// These hold content of users that the kernel refused.
	refusedTables refused[plan.Table]
	refusedRoutes refused[plan.Route]
	refusedRules  refused[plan.Rule]
	// lastHere is the latest result of Here.
	lastHere atomic.Pointer[map[netip.Addr][]string]
	// echoes are the changes of routes by Apply that Watch is still to be notified of.
	echoes echoes
}

// Open opens the network namespace of the calling thread.
func Open(options Options) (*Dataplane, error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return &Dataplane{
		options: options, netlink: handle, tunnels: map[string]tunnel{}, dialled: map[string]netip.AddrPort{},
		tables:        nftTables{known: map[string]nftTable{}},
		refusedTables: refused[plan.Table]{}, refusedRoutes: refused[plan.Route]{}, refusedRules: refused[plan.Rule]{},
	}, nil
}

// Close stops the tunnels that run inside this process and leaves everything else as it is.
func (d *Dataplane) Close() {
	for _, t := range d.tunnels {
		t.close()
	}
	d.netlink.Close()
}

// Observe reads the kernel state that this package manages. It reads settings of our devices and of
// the named ones.
func (d *Dataplane) Observe(ctx context.Context, devices ...string) (plan.State, error) {
	var s plan.State
	d.echoes.reset()
	links, err := d.links()
	if err != nil {
		return s, err
	}
	for _, l := range links {
		if err := d.observeLink(&s, l); err != nil {
			return s, fmt.Errorf("read link %s: %w", l.Attrs().Name, err)
		}
		devices = append(devices, l.Attrs().Name)
	}
	slices.Sort(devices)
	for _, name := range slices.Compact(devices) {
		settings, err := d.settings(name)
		if err != nil {
			return s, fmt.Errorf("read settings of %s: %w", name, err)
		}
		s.Settings = append(s.Settings, settings...)
	}
	if s.Routes, err = d.routes(); err != nil {
		return s, fmt.Errorf("read routes: %w", err)
	}
	if s.Rules, err = d.rules(); err != nil {
		return s, fmt.Errorf("read rules: %w", err)
	}
	if err := d.tables.read(ctx, &s); err != nil {
		return s, err
	}
	d.hideRefused(&s)
	return s, nil
}

// Apply makes changes. It removes references before the objects they point to, and adds them after.
// The nft table is written before the first device and removed after the last one. Otherwise the
// default route would forward unfiltered packets of the peer to anywhere in the cluster.
func (d *Dataplane) Apply(ctx context.Context, c plan.Changes) error {
	steps := []func() error{
		func() error { return each("remove rule", c.Rules, removed, d.deleteRule) },
		func() error { return each("remove route", c.Routes, removed, d.deleteRoute) },
		func() error { return each("remove neighbour", c.Neighbors, removed, d.deleteNeighbor) },
		func() error { return each("remove forwarding entry", c.Forwards, removed, d.deleteForward) },
		func() error { return each("remove address", c.Addresses, removed, d.deleteAddress) },
		func() error { return each("remove link", c.Overlays, removed, d.deleteOverlay) },
		func() error { return d.writeTable(ctx, c.Table) },
		func() error { return each("write link", c.Overlays, added, d.writeOverlay) },
		func() error { return d.writePeers(c.Peers, c.Tunnels) },
		func() error { return each("write setting", c.Settings, added, d.writeSetting) },
		func() error { return each("write address", c.Addresses, added, d.writeAddress) },
		func() error { return d.deleteTable(ctx, c.Table) },
		func() error { return d.writeQuotes(ctx, c.Quotes) },
		func() error { return each("write table", c.Tables, either, d.writeUserTable(ctx)) },
		func() error { return each("write forwarding entry", c.Forwards, added, d.writeForward) },
		func() error { return each("write neighbour", c.Neighbors, added, d.writeNeighbor) },
		func() error { return each("write route", c.Routes, added, d.writeRoute) },
		func() error { return each("write rule", c.Rules, added, d.writeRule) },
		d.deleteStaleFlows,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dataplane) writeTable(ctx context.Context, c *plan.TableChange) error {
	if c == nil || c.New == "" {
		return nil
	}
	if err := d.tables.write(ctx, ours, c.New); err != nil {
		return withModuleHint(err)
	}
	switch {
	case c.Old == "":
		d.exposed = c.Exposure.Targets // without a table there was no tunnel, and no connection either
	case !maps.Equal(d.exposed, d.exposure.Targets):
		d.exposed = nil // connections of two former tables are still tracked
	}
	d.exposure = c.Exposure
	return nil
}

func (d *Dataplane) deleteTable(ctx context.Context, c *plan.TableChange) error {
	if c == nil || c.New != "" {
		return nil
	}
	return d.tables.write(ctx, ours, "")
}

// withModuleHint adds the kernel modules to load to an error of nft that means a feature is missing.
func withModuleHint(err error) error {
	if err != nil && (strings.Contains(err.Error(), "No such file or directory") || strings.Contains(err.Error(),
		"not supported")) {
		return fmt.Errorf("%w: the kernel has no nf_tables, or a module that nft needs (underlined); run 'modprobe "+
			"-a nf_tables nf_conntrack nft_ct nft_nat nft_chain_nat nft_masq nft_redir nft_hash nft_fib_inet' on "+
			"the node", err)
	}
	return err
}

// removed selects deletions.
func removed[T any](old, new *T) bool { return new == nil && old != nil }

// added selects creations and updates.
func added[T any](_, new *T) bool { return new != nil }

// either selects all changes.
func either[T any](_, _ *T) bool { return true }

// each calls act for the selected changes; its error names the change that failed.
func each[T interface{ String() string }, C ~struct{ Old, New *T }](what string, changes []C, pick func(old,
	new *T) bool, act func(old, new *T) error) error {
	for _, x := range changes {
		c := struct{ Old, New *T }(x)
		if !pick(c.Old, c.New) {
			continue
		}
		if err := act(c.Old, c.New); err != nil {
			thing := c.New
			if thing == nil {
				thing = c.Old
			}
			return fmt.Errorf("%s %q: %w", what, (*thing).String(), err)
		}
	}
	return nil
}

// ignoreMissing returns nil for errors that mean the object does not exist, and others unchanged.
func ignoreMissing(err error) error {
	var missing netlink.LinkNotFoundError
	for _, e := range []error{syscall.ENOENT, syscall.ESRCH, syscall.ENODEV, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, e) {
			return nil
		}
	}
	if errors.As(err, &missing) {
		return nil
	}
	return err
}
