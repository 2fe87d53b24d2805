// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/liqo-go/liqo/network/gateway/plan"
)

const (
	// probeFor is how long each probe waits: a router looks 3 s for an address that nobody has.
	probeFor = 4 * time.Second
	// measureTries is how often each size is tried, so that a packet lost now and then says nothing.
	measureTries = 3
	// measureWait is how long the first answer may take: three round trips around the Earth.
	measureWait = time.Second
	// measureShort is a packet that passes wherever a tunnel does, in bytes: handshakes have 176.
	measureShort = 176
)

// probe sends packets beside the tunnel to the server's port at each valid address.
func probe(ctx context.Context, o plan.Options, addresses []netip.Addr) []plan.Probed {
	out := make([]plan.Probed, len(addresses))
	var all sync.WaitGroup
	for n, at := range addresses {
		if !at.IsValid() {
			continue
		}
		all.Go(func() {
			switch err := probeAt(ctx, netip.AddrPortFrom(at, uint16(o.EndpointPort)), o.TCP); {
			case errors.Is(err, syscall.ECONNREFUSED):
				out[n] = plan.ProbeRefused
			case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
				out[n] = plan.ProbeUnreachable
			case err == nil:
				out[n] = plan.ProbeListening
			}
		})
	}
	all.Wait()
	return out
}

// probeAt connects over TCP, or sends a packet over UDP and waits for an ICMP error. It returns a
// timeout if none comes.
func probeAt(ctx context.Context, at netip.AddrPort, tcp bool) error {
	transport := "udp"
	if tcp {
		transport = "tcp"
	}
	conn, err := (&net.Dialer{Timeout: probeFor, Control: reportErrors}).DialContext(ctx, transport, at.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if tcp {
		return nil
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	conn.SetDeadline(time.Now().Add(probeFor))
	if _, err := conn.Write([]byte{0}); err != nil { // too short for WireGuard, which drops it
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// reportErrors makes a socket report all ICMP errors: otherwise one over UDP does not report that an
// address is unreachable.
func reportErrors(network, _ string, c syscall.RawConn) error {
	var err error
	level, option := syscall.IPPROTO_IP, syscall.IP_RECVERR
	if strings.HasSuffix(network, "6") {
		level, option = syscall.IPPROTO_IPV6, syscall.IPV6_RECVERR
	}
	if failed := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), level, option, 1) }); failed != nil {
		return failed
	}
	return err
}

// measure finds the longest packet that reaches the peer. It reports false if the peer does not
// answer to short ones, before and after: it may answer to its own port only, or be gone.
func measure(ctx context.Context, o plan.Options, mtu int) (plan.Fit, bool) {
	own, peer := o.Addresses()
	local, remote := &net.UDPAddr{IP: own.Addr().AsSlice()}, &net.UDPAddr{IP: peer.AsSlice(), Port: o.PingPort}
	conn, err := net.DialUDP("udp", local, remote)
	if err != nil {
		return plan.Fit{}, false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	p := prober{conn: conn, clusterID: o.RemoteClusterID, patience: measureWait, header: 20 + 8}
	if own.Addr().Is6() {
		p.header = 40 + 8
	}
	if !p.passes(measureShort) {
		return plan.Fit{}, false
	}
	// Not that of the health, which is too high for a while: the first ping waited for the handshake.
	p.patience = plan.Health{Latency: p.latency}.Patience()
	sizes := plan.Sizes{Passes: measureShort}
	for size := sizes.Next(mtu); size != 0; size = sizes.Next(mtu) {
		if p.passes(size) {
			sizes.Passes = size
		} else {
			sizes.Fails = size
		}
	}
	return plan.Fit{MTU: mtu, Peer: p.mtu, Passes: sizes.Passes}, ctx.Err() == nil && p.passes(measureShort)
}

// prober sends pings of several sizes to the peer's gateway. Answers are short, whatever the size,
// so it measures one direction only.
type prober struct {
	conn      *net.UDPConn
	clusterID string
	patience  time.Duration
	// header is the length of the headers of IP and UDP, in bytes.
	header int
	// mtu is that of the peer's tunnel, in bytes, as it told; 0 = it did not. latency is that of the
	// last answer.
	mtu     int
	latency time.Duration
}

// passes reports whether a packet of a size reaches the peer.
func (p *prober) passes(size int) bool {
	for range measureTries {
		sent := time.Now().Round(0)
		text, _ := json.Marshal(message{ClusterID: p.clusterID, Type: plan.Ping, Time: sent})
		// Blanks after the text change nothing for those who read it, or only its beginning.
		if more := size - p.header - len(text); more > 0 {
			text = append(text, bytes.Repeat([]byte{' '}, more)...)
		}
		if _, err := p.conn.Write(text); err == nil && p.answered(sent) {
			return true
		}
	}
	return false
}

// answered waits for the answer to a ping.
func (p *prober) answered(sent time.Time) bool {
	buffer := make([]byte, messageLimit)
	p.conn.SetReadDeadline(time.Now().Add(p.patience))
	for {
		n, err := p.conn.Read(buffer)
		if err != nil {
			return false
		}
		var m message
		if json.Unmarshal(buffer[:n], &m) == nil && m.Type == plan.Pong && m.Time.Equal(sent) {
			p.mtu, p.latency = m.MTU, time.Since(sent)
			return true
		}
	}
}
