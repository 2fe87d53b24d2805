// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"slices"
	"time"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/gateway/plan"
)

const (
	// spreadCheck is between two looks which tunnels answer.
	spreadCheck = 500 * time.Millisecond
	// handshakeLasts is how long a WireGuard session may be used (REJECT_AFTER_TIME).
	handshakeLasts = 180 * time.Second
)

// begin forgets what pings told: another peer is at the other end now, or none.
func (g *gateway) begin(renewed bool) {
	g.reported.Store(nil)
	for _, p := range g.pingers() {
		p.begin(renewed, g.peer.Load() == "")
	}
}

// pingers are those of all tunnels.
func (g *gateway) pingers() []*pinger { return append([]*pinger{g.pinger}, g.further...) }

// health is that of the first tunnel in which the peer answers, else of the first, with what that makes of
// the connection; last is what it was.
func (g *gateway) health(now time.Time, last netv1beta1.ConnectionStatusValue) (plan.Health, netv1beta1.ConnectionStatusValue) {
	for _, p := range g.pingers() {
		if h := p.Health(); h.Connection(now, last, g.Ping) == netv1beta1.Connected {
			return h, netv1beta1.Connected
		}
	}
	h := g.pinger.Health()
	return h, h.Connection(now, last, g.Ping)
}

// silent are the numbers of the tunnels in which the peer does not answer. One that never answered pings
// is not silent while WireGuard has a handshake: a peer may answer in the first only.
func (g *gateway) silent(now time.Time) (out []int) {
	if len(g.further) == 0 || !g.PingEnabled {
		return nil
	}
	for n, p := range g.pingers() {
		h := p.Health()
		switch {
		case h.Connection(now, netv1beta1.Connecting, g.Ping) == netv1beta1.Connected:
		case h.Answered.IsZero() && now.Sub(g.trafficOf(n).Handshake) < handshakeLasts:
		default:
			out = append(out, n)
		}
	}
	return out
}

// ports are those of tunnels, as this side knows them.
func (g *gateway) ports(tunnels []int) (out []int) {
	all := append([]int{g.EndpointPort}, g.MoreEndpointPorts...)
	if g.Server {
		all = append([]int{g.ListenPort}, g.MoreListenPorts...)
	}
	for _, n := range tunnels {
		out = append(out, all[n])
	}
	return out
}

// keepSpread leads connections to other tunnels when one falls silent, and back.
func (g *gateway) keepSpread(ctx context.Context) error {
	for before := []int(nil); ctx.Err() == nil; pause(ctx, spreadCheck) {
		if now := g.silent(time.Now()); !slices.Equal(before, now) {
			before = now
			g.Look()
			notify(g.pinger.changed)
		}
	}
	return nil
}
