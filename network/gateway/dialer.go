// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/plan"
)

const (
	// redialEager is between two attempts to reach a server that never answered: WireGuard itself
	// tries every 5 s, which is long for somebody who waits for a peering. One that did answer is
	// tried again as soon as an answer is late.
	redialEager = time.Second
	// redialLate is the same after redialEagerFor without an answer.
	redialLate     = 10 * time.Second
	redialEagerFor = time.Minute
	// suspectEvery is between two looks whether the tunnel only sends.
	suspectEvery = 200 * time.Millisecond
)

// dialer finds the server's address. It is empty on servers, to which the client comes.
type dialer struct {
	host  string
	port  int
	every time.Duration

	mu    sync.Mutex
	at    time.Time // of the last answer of the DNS
	found netip.AddrPort
}

// endpoint is where to dial; invalid when there is nothing to dial or no answer yet. A name is
// asked for again when the interval is over; the last address stays when there is no answer.
func (d *dialer) endpoint(ctx context.Context, now time.Time) netip.AddrPort {
	if d.host == "" {
		return netip.AddrPort{}
	}
	if a, err := netip.ParseAddr(d.host); err == nil {
		return netip.AddrPortFrom(a.Unmap(), uint16(d.port))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.found.IsValid() && now.Sub(d.at) < d.every {
		return d.found
	}
	// 5 s: a look at the kernel waits for it.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", d.host)
	if err != nil || len(addrs) == 0 {
		klog.FromContext(ctx).Info("The name of the gateway server has no address", "name", d.host, "error", err)
		return d.found
	}
	next := netip.AddrPortFrom(addrs[0].Unmap(), uint16(d.port))
	for _, a := range addrs {
		if a.Unmap() == d.found.Addr() {
			next = d.found // a name with several addresses is no reason to move
		}
	}
	d.found, d.at = next, now
	return next
}

// forget makes the next endpoint ask the DNS again, and take another address when it has one.
func (d *dialer) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = time.Time{}
}

// heard is what a client remembers of its tunnel and of its attempts to reach the server.
type heard struct {
	dataplane.Traffic
	// at is when the tunnel last brought something.
	at, dialled, named time.Time
}

// keepDialled makes a client find its server again when it was replaced: without waiting for the API
// server, which may be away.
func (g *gateway) keepDialled(ctx context.Context) error {
	var h heard
	for {
		asked := false
		select {
		case <-ctx.Done():
			return nil
		case <-g.pinger.moved:
			asked = true
		case <-g.pinger.late:
		case <-time.After(suspectEvery):
			if h.listen(g.traffic(), time.Now()) && g.pinger.Health().Open.IsZero() {
				notify(g.pinger.hurry) // the next regular ping can be seconds away
			}
			continue
		}
		if g.peer.Load() == "" || !g.leads.Load() {
			continue
		}
		if err := g.redial(time.Now(), asked, &h); err != nil {
			klog.FromContext(ctx).Error(err, "The server could not be dialled anew")
		}
	}
}

// listen compares the tunnel with what it was, and tells whether it only sent.
func (h *heard) listen(t dataplane.Traffic, now time.Time) (suspicious bool) {
	suspicious = t.Sent > h.Sent && t.Received == h.Received
	if t.Received > h.Received {
		h.at = now
	}
	h.Traffic = t
	return suspicious
}

// redial makes a client try the server anew when that is due: asked to by a server that hands over,
// or unanswered – at the address its name has now and, when nothing at all came through the tunnel
// for that time, from the beginning.
func (g *gateway) redial(now time.Time, asked bool, h *heard) error {
	wait, due := redialDue(now, asked, g.pinger.Health())
	h.listen(g.traffic(), now)
	if !due || now.Sub(h.dialled) < wait {
		return nil
	}
	if !asked && now.Sub(h.named) >= redialEager {
		g.dialer.forget()
		g.Look() // takes the address the name has now
		h.named = now
	}
	if !asked && now.Sub(h.at) < wait {
		return nil
	}
	h.dialled = now
	key, _ := g.peer.Load().(string)
	var err error
	g.With(func(plane *dataplane.Dataplane) {
		for n, device := range g.devices() {
			err = errors.Join(err, plane.DialAnew(device, key, g.ListenPort == 0 || n > 0))
		}
	})
	h.Traffic = dataplane.Traffic{} // the counters begin anew with the peer
	return err
}

// redialDue tells whether the server is to be tried anew, and how long after the last attempt.
func redialDue(now time.Time, asked bool, h plan.Health) (wait time.Duration, due bool) {
	tried := h.Answered
	if tried.IsZero() {
		tried = h.Started
	}
	switch {
	case asked:
		return moveEvery, true
	case now.Sub(tried) >= redialEagerFor:
		return redialLate, h.Late(now)
	case h.Answered.IsZero():
		return redialEager, now.Sub(h.Started) >= redialEager
	}
	return h.Patience(), h.Late(now)
}
