// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/liqo-go/liqo/network/plan"
)

// tunnel is one WireGuard device, in the kernel or in this process.
type tunnel interface {
	device() (*wgtypes.Device, error)
	configure(wgtypes.Config) error
	// tcp reports whether the transport is TCP.
	tcp() bool
	// close stops what runs in this process.
	close()
}

// These are the implementations of WireGuard that Implementation returns.
const (
	Kernel    = "kernel"
	Userspace = "userspace"
)

// Traffic returns the counters of a peer; zero if there is no such peer.
func (d *Dataplane) Traffic(device, publicKey string) (plan.Traffic, error) {
	d.tunnelling.Lock()
	defer d.tunnelling.Unlock()
	dev, err := d.tunnelOf(device).device()
	if err != nil {
		return plan.Traffic{}, fmt.Errorf("read tunnel %s: %w", device, err)
	}
	for _, p := range dev.Peers {
		if p.PublicKey.String() == publicKey {
			return plan.Traffic{Received: p.ReceiveBytes, Sent: p.TransmitBytes, Handshake: p.LastHandshakeTime,
				Endpoint: endpoint(p.Endpoint), Port: dev.ListenPort}, nil
		}
	}
	return plan.Traffic{}, nil
}

// Implementation returns the WireGuard implementation of a device: Kernel or Userspace.
func (d *Dataplane) Implementation(device string) string {
	d.tunnelling.Lock()
	defer d.tunnelling.Unlock()
	if _, ok := d.tunnels[device]; ok {
		return Userspace
	}
	return Kernel
}

// Redial removes a peer from a tunnel. The next Apply adds it again, so WireGuard starts a handshake
// with the desired endpoint at once, instead of its retry every 5 s.
func (d *Dataplane) Redial(device, publicKey string) error {
	d.tunnelling.Lock()
	defer d.tunnelling.Unlock()
	peer := plan.Peer{Device: device, PublicKey: publicKey}
	return d.writePeer(&peer, nil)
}

// HangUp closes the connections accepted by tunnels over TCP; their clients connect again.
func (d *Dataplane) HangUp() {
	d.tunnelling.Lock()
	defer d.tunnelling.Unlock()
	for _, t := range d.tunnels {
		if u, ok := t.(userspaceTunnel); ok && u.tcp() {
			u.stream.hangUp()
		}
	}
}

// tunnelOf returns the tunnel of a device; one that does not run in this process is the kernel's.
func (d *Dataplane) tunnelOf(device string) tunnel {
	if t, ok := d.tunnels[device]; ok {
		return t
	}
	return kernelTunnel(device)
}

func (d *Dataplane) observeTunnel(s *plan.State, l netlink.Link) error {
	d.tunnelling.Lock()
	defer d.tunnelling.Unlock()
	a := l.Attrs()
	t := d.tunnelOf(a.Name)
	dev, err := t.device()
	if err != nil {
		return err
	}
	s.Tunnels = append(s.Tunnels, plan.Tunnel{
		Name: a.Name, MTU: a.MTU, ListenPort: dev.ListenPort, TCP: t.tcp(),
		PublicKey: dev.PrivateKey.PublicKey().String(), Down: a.Flags&net.FlagUp == 0,
	})
	for _, p := range dev.Peers {
		peer := plan.Peer{Device: a.Name, PublicKey: p.PublicKey.String(),
			Keepalive: int(p.PersistentKeepaliveInterval.Seconds()), Endpoint: endpoint(p.Endpoint)}
		if configured, ok := d.dialled[a.Name+" "+peer.PublicKey]; ok && peer.Endpoint.IsValid() {
			peer.Endpoint = configured
		}
		for _, n := range p.AllowedIPs {
			peer.AllowedIPs = append(peer.AllowedIPs, prefix(&n))
		}
		slices.SortFunc(peer.AllowedIPs, netip.Prefix.Compare)
		s.Peers = append(s.Peers, peer)
	}
	return nil
}

// writePeers applies the changes of tunnel devices and peers.
func (d *Dataplane) writePeers(peers []plan.Change[plan.Peer], tunnels []plan.Change[plan.Tunnel]) error {
	d.tunnelling.Lock()
	defer d.tunnelling.Unlock()
	for _, c := range slices.Backward(tunnels) { // highest number first: links stops at the first gap
		if c.New != nil {
			continue
		}
		if err := d.removeTunnel(c.Old.Name); err != nil {
			return fmt.Errorf("remove link %s: %w", c.Old.Name, err)
		}
	}
	for _, c := range tunnels {
		if c.New == nil {
			continue
		}
		if err := d.writeTunnel(c.Old, c.New); err != nil {
			return fmt.Errorf("write link %s: %w", c.New.Name, err)
		}
	}
	for _, c := range peers {
		if err := d.writePeer(c.Old, c.New); err != nil {
			return err
		}
	}
	return nil
}

// writeTunnel creates or updates a device with its key, port and MTU, and sets it up. A device with
// another transport is recreated; the next reconcile restores its peers, addresses and routes.
func (d *Dataplane) writeTunnel(old, new *plan.Tunnel) error {
	if old != nil && old.TCP != new.TCP {
		if err := d.removeTunnel(old.Name); err != nil {
			return err
		}
		old = nil
	}
	if old == nil {
		if err := d.makeTunnel(new); err != nil {
			return err
		}
	}
	config := wgtypes.Config{}
	if old == nil || old.PublicKey != new.PublicKey {
		config.PrivateKey = &d.options.PrivateKey
	}
	if new.ListenPort != 0 && (old == nil || old.ListenPort != new.ListenPort) {
		config.ListenPort = &new.ListenPort
	}
	if config.PrivateKey != nil || config.ListenPort != nil {
		if err := d.tunnelOf(new.Name).configure(config); err != nil {
			return err
		}
	}
	return d.raise(new.Name, new.MTU)
}

// makeTunnel creates a tunnel in the kernel or, if it has no WireGuard, in this process. The kernel
// supports only UDP as transport.
func (d *Dataplane) makeTunnel(want *plan.Tunnel) error {
	var stream *tcpBind
	if want.TCP {
		stream = newTCPBind(d.options.Dial)
	} else if !d.options.Userspace {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = want.Name, want.MTU
		err := d.netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: attrs})
		if !errors.Is(err, syscall.EOPNOTSUPP) {
			return err
		}
	}
	t, err := startUserspace(want.Name, want.MTU, stream)
	if err != nil {
		return err
	}
	d.tunnels[want.Name] = t
	return nil
}

func (d *Dataplane) removeTunnel(name string) error {
	if t, ok := d.tunnels[name]; ok {
		t.close()
		delete(d.tunnels, name)
	}
	return d.deleteLink(name)
}

func (d *Dataplane) writePeer(old, want *plan.Peer) error {
	p := want
	if want == nil {
		p = old
	}
	key, err := wgtypes.ParseKey(p.PublicKey)
	if err != nil {
		return fmt.Errorf("parse key %q: %w", p.PublicKey, err)
	}
	config := wgtypes.PeerConfig{PublicKey: key, Remove: want == nil}
	if want != nil {
		config.ReplaceAllowedIPs = true
		for _, a := range want.AllowedIPs {
			config.AllowedIPs = append(config.AllowedIPs, *ipNet(a))
		}
		config.PersistentKeepaliveInterval = new(time.Duration(p.Keepalive) * time.Second)
		if p.Endpoint.IsValid() && (old == nil || old.Endpoint != p.Endpoint) {
			config.Endpoint = net.UDPAddrFromAddrPort(p.Endpoint)
		}
	}
	if err := d.tunnelOf(p.Device).configure(wgtypes.Config{Peers: []wgtypes.PeerConfig{config}}); err != nil {
		if want == nil && errors.Is(err, os.ErrNotExist) {
			return nil // deleted with its device
		}
		return fmt.Errorf("write tunnel peer %s: %w", p.PublicKey, err)
	}
	delete(d.dialled, p.Device+" "+p.PublicKey)
	if want != nil && p.Endpoint.IsValid() {
		d.dialled[p.Device+" "+p.PublicKey] = p.Endpoint
	}
	return nil
}

func endpoint(a *net.UDPAddr) netip.AddrPort {
	if a == nil {
		return netip.AddrPort{}
	}
	p := a.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

// kernelTunnel is the name of a WireGuard device of the kernel.
type kernelTunnel string

func (k kernelTunnel) device() (*wgtypes.Device, error) {
	c, err := wgctrl.New()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Device(string(k))
}

func (k kernelTunnel) configure(config wgtypes.Config) error {
	c, err := wgctrl.New()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.ConfigureDevice(string(k), config)
}

func (k kernelTunnel) tcp() bool { return false }

func (k kernelTunnel) close() {}
