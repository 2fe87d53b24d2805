// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"fmt"
	"net"
	"net/netip"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// DialAnew makes a client start a new handshake with its server at once. WireGuard itself would
// notice a replaced server only 15 s after the last answer, and then retry every 5 s.
//
// An invalid address keeps the configured endpoint. port is the local UDP port; 0 picks a new one.
// NATs and node ports of the server's cluster track connections: they would forward packets from
// the old port to the old server.
func (d *Dataplane) DialAnew(device, publicKey string, at netip.AddrPort, port int) error {
	d.tunnelling.Lock()
	defer d.tunnelling.Unlock()
	t := d.tunnelOf(device)
	dev, err := t.device()
	if err != nil {
		return fmt.Errorf("read tunnel %s: %w", device, err)
	}
	for _, p := range dev.Peers {
		if p.PublicKey.String() != publicKey {
			continue
		}
		again := wgtypes.PeerConfig{PublicKey: p.PublicKey, Endpoint: p.Endpoint, AllowedIPs: p.AllowedIPs,
			ReplaceAllowedIPs: true}
		again.PersistentKeepaliveInterval = new(p.PersistentKeepaliveInterval)
		if !at.IsValid() {
			at = d.dialled[device+" "+publicKey]
		}
		if at.IsValid() {
			again.Endpoint = net.UDPAddrFromAddrPort(at)
			d.dialled[device+" "+publicKey] = at
		}
		config := wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: p.PublicKey, Remove: true}, again}}
		if port == 0 || port != dev.ListenPort {
			config.ListenPort = &port
		}
		if err := t.configure(config); err != nil {
			return fmt.Errorf("dial tunnel peer %s: %w", publicKey, err)
		}
	}
	return nil
}
