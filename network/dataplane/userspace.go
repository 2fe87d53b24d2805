// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// userspaceTunnel is WireGuard inside this process, on a TUN device with the same lifetime.
type userspaceTunnel struct {
	dev *device.Device
	// stream is the transport over TCP; nil for UDP.
	stream *tcpBind
	// calls counts rejected handshakes.
	calls *calls
}

// startUserspace starts a tunnel over TCP with the given bind, or over UDP if it is nil.
func startUserspace(name string, mtu int, stream *tcpBind) (userspaceTunnel, error) {
	t, err := tun.CreateTUN(name, mtu)
	if err != nil {
		return userspaceTunnel{}, fmt.Errorf("create TUN device: %w; where the kernel has neither, run "+
			"'modprobe wireguard' or 'modprobe tun' on the node", err)
	}
	bind := conn.NewDefaultBind()
	if stream != nil {
		bind = stream
	}
	refused := &calls{}
	u := userspaceTunnel{device.NewDevice(t, bind, refused.logger()), stream, refused}
	if stream != nil {
		stream.connected = u.greet
	}
	if err := u.start(); err != nil {
		u.close()
		return userspaceTunnel{}, fmt.Errorf("start WireGuard: %w", err)
	}
	return u, nil
}

// start opens the sockets in the network namespace of the calling thread. A goroutine of the device
// may have started it before, with sockets in that of the process.
func (u userspaceTunnel) start() error { return errors.Join(u.dev.Up(), u.dev.BindUpdate()) }

func (u userspaceTunnel) close() {
	u.dev.Close()
	if u.stream != nil {
		u.stream.wait()
	}
}

func (u userspaceTunnel) tcp() bool { return u.stream != nil }

// greet starts a new session with the peer after a connection to it was made. The server may be a new
// process that does not know the old session, and learns the peer's endpoint only from a packet
// it can authenticate. WireGuard alone would notice after 15 s.
func (u userspaceTunnel) greet(to netip.AddrPort) {
	dev, err := u.device()
	if err != nil {
		return // the device is being closed
	}
	for _, p := range dev.Peers {
		if peer := u.dev.LookupPeer(device.NoisePublicKey(p.PublicKey)); peer != nil && endpoint(p.Endpoint) == to {
			peer.ExpireCurrentKeypairs()
			peer.SendHandshakeInitiation(false) // WireGuard retries it
		}
	}
}

// configure writes the cross-platform text interface of WireGuard.
func (u userspaceTunnel) configure(c wgtypes.Config) error {
	var b strings.Builder
	if c.PrivateKey != nil {
		fmt.Fprintf(&b, "private_key=%s\n", hex.EncodeToString(c.PrivateKey[:]))
	}
	if c.ListenPort != nil {
		fmt.Fprintf(&b, "listen_port=%d\n", *c.ListenPort)
	}
	for _, p := range c.Peers {
		fmt.Fprintf(&b, "public_key=%s\n", hex.EncodeToString(p.PublicKey[:]))
		if p.Remove {
			b.WriteString("remove=true\n")
			continue
		}
		if p.Endpoint != nil {
			fmt.Fprintf(&b, "endpoint=%s\n", p.Endpoint)
		}
		if p.PersistentKeepaliveInterval != nil {
			fmt.Fprintf(&b, "persistent_keepalive_interval=%d\n", int(p.PersistentKeepaliveInterval.Seconds()))
		}
		b.WriteString("replace_allowed_ips=true\n")
		for _, a := range p.AllowedIPs {
			fmt.Fprintf(&b, "allowed_ip=%s\n", a.String())
		}
	}
	return u.dev.IpcSet(b.String())
}

// device reads the text interface.
func (u userspaceTunnel) device() (*wgtypes.Device, error) {
	text, err := u.dev.IpcGet()
	if err != nil {
		return nil, err
	}
	out := &wgtypes.Device{Type: wgtypes.Userspace}
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), "=")
		if key == "public_key" {
			out.Peers = append(out.Peers, wgtypes.Peer{PublicKey: hexKey(value)})
		} else if n := len(out.Peers); n > 0 {
			readPeer(&out.Peers[n-1], key, value)
		} else {
			readDevice(out, key, value)
		}
	}
	return out, nil
}

func readDevice(d *wgtypes.Device, key, value string) {
	switch key {
	case "private_key":
		d.PrivateKey = hexKey(value)
	case "listen_port":
		d.ListenPort, _ = strconv.Atoi(value)
	}
}

// readPeer reads one line. A value that does not parse stays zero: the text comes from the library.
func readPeer(p *wgtypes.Peer, key, value string) {
	number, _ := strconv.ParseInt(value, 10, 64)
	switch key {
	case "endpoint":
		if a, err := netip.ParseAddrPort(value); err == nil {
			p.Endpoint = net.UDPAddrFromAddrPort(a)
		}
	case "last_handshake_time_sec":
		if number > 0 {
			p.LastHandshakeTime = time.Unix(number, int64(p.LastHandshakeTime.Nanosecond()))
		}
	case "rx_bytes":
		p.ReceiveBytes = number
	case "tx_bytes":
		p.TransmitBytes = number
	case "persistent_keepalive_interval":
		p.PersistentKeepaliveInterval = time.Duration(number) * time.Second
	case "allowed_ip":
		if n, err := netip.ParsePrefix(value); err == nil {
			p.AllowedIPs = append(p.AllowedIPs, *ipNet(n))
		}
	}
}

func hexKey(text string) wgtypes.Key {
	raw, _ := hex.DecodeString(text)
	key, _ := wgtypes.NewKey(raw)
	return key
}
