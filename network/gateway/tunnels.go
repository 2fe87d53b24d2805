// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"errors"
	"net/netip"

	"k8s.io/klog/v2"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/gateway/plan"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// workLimit bounds the work on tunnels that waits. There are at most some ten pieces a second.
const workLimit = 1024

// tunnels are the tunnels of a gateway. Work on them is done in order, beside the decisions.
type tunnels struct {
	plan.Options
	plane *dataplane.Dataplane
	work  chan func()
	// relay is that of a server that hands over; nil = there is none. Only work uses it.
	relay *relay
}

// do queues work.
func (t *tunnels) do(ctx context.Context, f func()) {
	select {
	case t.work <- f:
	case <-ctx.Done():
	}
}

// run works until the context ends.
func (t *tunnels) run(ctx context.Context) error {
	defer t.closeRelay()
	for {
		select {
		case <-ctx.Done():
			return nil
		case f := <-t.work:
			f()
		}
	}
}

// count reads the counters.
func (t *tunnels) count(a plan.Count) plan.Counters {
	first := api.TunnelInterface(0)
	out := plan.Counters{Traffic: t.traffic(a.Peer), Implementation: t.plane.Implementation(first)}
	out.Calls, out.Counted = t.plane.Calls(first)
	if a.MTU {
		out.MTU = t.plane.MTU(first)
	}
	return out
}

// traffic returns the counters of each tunnel with a peer; zero without a tunnel or a peer.
func (t *tunnels) traffic(peer string) (out []kernel.Traffic) {
	for _, device := range t.Devices() {
		x, _ := t.plane.Traffic(device, peer)
		out = append(out, x)
	}
	return out
}

// redial starts new handshakes with the server.
func (t *tunnels) redial(ctx context.Context, a plan.Redial) {
	var err error
	for _, x := range a.Dials {
		err = errors.Join(err, t.plane.DialAnew(api.TunnelInterface(x.Tunnel), a.Peer, x.At, x.From))
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "The server could not be dialled anew")
	}
}

// forget removes the peer. The next reconcile adds it again, without an endpoint.
func (t *tunnels) forget(ctx context.Context, peer string) {
	var err error
	for _, device := range t.Devices() {
		err = errors.Join(err, t.plane.Redial(device, peer))
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "The client could not be forgotten")
	}
}

// openRelay opens a relay and returns the redirections it needs. If one is open, it changes its
// destination.
func (t *tunnels) openRelay(ctx context.Context, to netip.Addr) (relays []kernel.Relay, opened bool) {
	if t.relay.redirect(to) {
		return nil, false
	}
	t.relay, relays = openRelay(ctx, to, t.Ports(), t.TCP)
	return relays, true
}

func (t *tunnels) closeRelay() {
	t.relay.close()
	t.relay = nil
}
