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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/network/gateway/plan"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// witness remembers what tells why the peer's gateway does not answer, or only to short packets.
// What that means is decided in network/plan.
type witness struct {
	mu    sync.Mutex
	sight plan.Evidence
	// What the tunnel had counted when it was looked at last; begun tells for which peer.
	traffic kernel.Traffic
	calls   kernel.Calls
	begun   time.Time
	// fit is nil while nothing is known.
	fit *plan.Fit
}

const (
	// knockEvery is between two attempts of a client to learn more about a server that does not
	// answer, knockFor how long each waits: a router looks 3 s for an address that nobody has.
	knockEvery, knockFor = 5 * time.Second, 4 * time.Second
	// knockLook is between two looks whether one is due.
	knockLook = time.Second
	// measureFirst is how long after the first answer the MTU is tried, which the peering need not
	// wait for; measureAgain is between two times that it fits, measureBad when it does not. measureLook
	// is between two questions to the kernel for our own.
	measureFirst, measureAgain, measureBad, measureLook = time.Second, time.Minute, 10 * time.Second, 5 * time.Second
	// measureTries is how often each size is tried, so that a packet lost now and then says nothing.
	measureTries = 3
	// measureWait is how long the first answer may take: three round trips around the Earth.
	measureWait = time.Second
	// measureShort is a packet that passes wherever a tunnel does, in bytes: handshakes have 176.
	measureShort = 176
)

// see takes a look at the tunnel and returns all that is known.
func (g *gateway) see(w *witness, h plan.Health, now time.Time) plan.Evidence {
	traffic := g.traffic()
	calls, tells := g.plane.Calls(api.TunnelInterface(0))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun != h.Started { // another peer, or the first look
		w.sight, w.traffic, w.calls, w.begun, w.fit = plan.Evidence{}, traffic, calls, h.Started, nil
	}
	s := &w.sight
	s.Health, s.Tells, s.Handshake = h, tells, traffic.Handshake
	// Less than before: the peer was put in anew.
	if traffic.Received != w.traffic.Received && traffic.Received > 0 {
		if now.Sub(s.Heard) > plan.EvidenceFor {
			s.HeardFirst = now
		}
		s.Heard = now
	}
	if a := traffic.Endpoint.Addr(); a.IsValid() {
		s.From = a
	}
	for _, c := range []struct {
		now, before int64
		at          *time.Time
	}{
		{calls.Misaddressed, w.calls.Misaddressed, &s.Misaddressed}, {calls.Strange, w.calls.Strange, &s.Strange}, {calls.Replayed, w.calls.Replayed, &s.Replayed},
	} {
		if c.now > c.before {
			*c.at = now
		}
	}
	w.traffic, w.calls = traffic, calls
	s.Namespace, s.Name, s.Server, s.TCP, s.Port = g.Namespace, g.Name, g.Server, g.TCP, g.EndpointPort
	if g.Server {
		s.Port = g.ListenPort
	}
	if s.Targets == nil {
		s.Targets = make([]plan.Target, len(g.dialer.hosts))
	}
	for n, at := range g.dialer.addresses() {
		s.Targets[n].Host, s.Targets[n].At = g.dialer.hosts[n], at
	}
	seen := *s
	seen.Targets = slices.Clone(s.Targets)
	return seen
}

// measured is what is known of the MTU; nil = nothing.
func (w *witness) measured() *plan.Fit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fit
}

// knock tries, while the server does not answer, what its port says at each address to packets from
// beside the tunnel: WireGuard says nothing to them, but routers and hosts may.
func (g *gateway) knock(ctx context.Context, w *witness) {
	for ctx.Err() == nil {
		if !g.unanswered() {
			pause(ctx, knockLook)
			continue
		}
		var all sync.WaitGroup
		for n, at := range g.dialer.addresses() {
			if at.IsValid() {
				all.Go(func() { w.learn(n, g.knockAt(ctx, netip.AddrPortFrom(at, uint16(g.EndpointPort)))) })
			}
		}
		all.Wait()
		pause(ctx, knockEvery)
	}
}

// learn remembers what came of knocking at an address of the server.
func (w *witness) learn(n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n >= len(w.sight.Targets) {
		return // of a peer that is no more
	}
	switch t, now := &w.sight.Targets[n], time.Now(); {
	case errors.Is(err, syscall.ECONNREFUSED):
		t.Refused = now
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		t.Unreachable = now
	case err == nil:
		t.Listening = now
	}
}

// unanswered tells whether this pod has a peer that owes it an answer.
func (g *gateway) unanswered() bool {
	return g.leads.Load() && g.peer.Load() != "" && g.pinger.Health().Late(time.Now())
}

// knockAt connects over TCP, or sends a packet over UDP and waits for an ICMP error; it returns
// a timeout when none comes.
func (g *gateway) knockAt(ctx context.Context, at netip.AddrPort) error {
	transport := "udp"
	if g.TCP {
		transport = "tcp"
	}
	conn, err := (&net.Dialer{Timeout: knockFor, Control: tellAll}).DialContext(ctx, transport, at.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	if g.TCP {
		return nil
	}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	conn.SetDeadline(time.Now().Add(knockFor))
	if _, err := conn.Write([]byte{0}); err != nil { // too short for WireGuard, which drops it
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

// tellAll makes a socket report all ICMP errors: otherwise one over UDP keeps to itself that an address
// is unreachable.
func tellAll(network, _ string, c syscall.RawConn) error {
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

// measure finds out, now and then, whether packets as long as the tunnel takes them get to the peer, and has those
// that do not told to be shorter.
func (g *gateway) measure(ctx context.Context, w *witness) {
	var next time.Time
	var last plan.Fit
	mtu, asked := 0, time.Time{}
	for ; ctx.Err() == nil; pause(ctx, measureFirst) {
		h, now := g.pinger.Health(), time.Now()
		if mtu == 0 || now.Sub(asked) >= measureLook {
			mtu = g.plane.MTU(api.TunnelInterface(0))
			g.pinger.mtu.Store(int64(mtu))
			asked = now
		}
		if mtu == 0 || !g.leads.Load() || h.Answered.IsZero() || h.Late(now) {
			next = time.Time{}
			continue
		}
		if now.Before(next) && mtu == last.MTU && int(g.pinger.told.Load()) == last.Peer {
			continue
		}
		fit, ok := g.fit(ctx, mtu)
		if !ok {
			continue
		}
		if passes := fit.PathMTU(last); g.passes.Swap(int64(passes)) != int64(passes) {
			g.Look()
		}
		next, last = time.Now().Add(measureBad), fit
		if fits, _, _ := fit.Verdict(); fits {
			next = time.Now().Add(measureAgain)
		}
		w.mu.Lock()
		w.fit = &fit
		w.mu.Unlock()
		notify(g.pinger.changed)
	}
}

// fit searches the longest packet that gets to the peer. It says nothing about a peer that does not
// answer to short ones, before and after: it may be one that answers to its own port only, or gone.
func (g *gateway) fit(ctx context.Context, mtu int) (plan.Fit, bool) {
	conn, err := net.DialUDP("udp", &net.UDPAddr{IP: g.pinger.own.Addr().AsSlice()}, net.UDPAddrFromAddrPort(g.pinger.peer))
	if err != nil {
		return plan.Fit{}, false
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	p := prober{conn: conn, clusterID: g.RemoteClusterID, patience: measureWait, header: 20 + 8}
	if g.pinger.own.Addr().Is6() {
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

// prober sends pings of several sizes to the peer's gateway. Answers are short, whatever the size:
// they tell of one direction only.
type prober struct {
	conn      *net.UDPConn
	clusterID string
	patience  time.Duration
	// header is the length of those of IP and UDP.
	header int
	// mtu is what the peer told of its side, 0 = nothing; latency is that of the last answer.
	mtu     int
	latency time.Duration
}

// passes tells whether a packet of a size gets to the peer.
func (p *prober) passes(size int) bool {
	for range measureTries {
		sent := time.Now().Round(0)
		text, _ := json.Marshal(message{ClusterID: p.clusterID, Type: ping, Time: sent})
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
		if json.Unmarshal(buffer[:n], &m) == nil && m.Type == pong && m.Time.Equal(sent) {
			p.mtu, p.latency = m.MTU, time.Since(sent)
			return true
		}
	}
}
