// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"net"
	"time"

	"github.com/liqo-go/liqo/network/gateway/plan"
)

// lookUpFor bounds a question to the DNS: Go's resolver gives a server as long.
const lookUpFor = 5 * time.Second

// act starts an action. Its result, if it has one, becomes an event.
func (g *gateway) act(ctx context.Context, action plan.Action, sockets []*socket) {
	beside := func(f func() event) { go func() { g.tell(ctx, f()) }() }
	switch a := action.(type) {
	case plan.End:
		g.tunnels.do(ctx, g.end) // after what is still to be done
	case plan.Send:
		sockets[a.Tunnel].send(message{ClusterID: g.RemoteClusterID, Type: a.Type, Time: a.Sent, Turn: a.Turn})
	case plan.LookUp:
		beside(func() event {
			found := lookUp(ctx, a.Host)
			return func(s *plan.Sight) { s.Resolved = &found }
		})
	case plan.Probe:
		beside(func() event {
			found := probe(ctx, g.Options, a.Addresses)
			return func(s *plan.Sight) { s.Probes = found }
		})
	case plan.Measure:
		beside(func() event {
			fit, done := measure(ctx, g.Options, a.MTU)
			return func(s *plan.Sight) { s.Path = &plan.Measured{Fit: fit, Done: done} }
		})
	case plan.EnsureConnection, plan.WriteStatus:
		beside(func() event {
			written := writer{g.client.Networking}.write(ctx, a)
			return func(s *plan.Sight) { s.Written = &written }
		})
	case plan.Count:
		g.tunnels.do(ctx, func() {
			counters := g.tunnels.count(a)
			if a.MTU {
				sockets[0].setMTU(counters.MTU)
			}
			g.tell(ctx, func(s *plan.Sight) { s.Counters = &counters })
		})
	case plan.OpenRelay:
		g.tunnels.do(ctx, func() {
			if relays, opened := g.tunnels.openRelay(ctx, a.To); opened {
				g.tell(ctx, func(s *plan.Sight) { s.Relays = &relays })
			}
		})
	case plan.CloseRelay:
		g.tunnels.do(ctx, g.tunnels.closeRelay)
	case plan.HangUp:
		g.tunnels.do(ctx, g.tunnels.plane.HangUp)
	case plan.Redial:
		g.tunnels.do(ctx, func() {
			g.tunnels.redial(ctx, a)
			g.Changed()
			g.tell(ctx, func(s *plan.Sight) { s.Redialled = true })
		})
	case plan.Forget:
		g.tunnels.do(ctx, func() {
			g.tunnels.forget(ctx, a.Peer)
			g.Changed()
			g.Look()
		})
	}
}

func lookUp(ctx context.Context, host string) plan.Resolved {
	ctx, cancel := context.WithTimeout(ctx, lookUpFor)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	out := plan.Resolved{Host: host, Found: found}
	if err != nil {
		out.Err = err.Error()
	}
	return out
}
