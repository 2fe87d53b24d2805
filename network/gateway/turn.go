// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"k8s.io/klog/v2"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// Several pods can run for one gateway: replicas, or one that ends and its successor. Nodes send
// to the one the InternalFabric names, so that one has the tunnel:
//
//	lease, where there are replicas ─▶ controller ─▶ label on the pod ─▶ Service, controller ─▶ InternalFabric
//	                                                                                                │
//	              the named pod: a client dials, a server answers ◀─────────────────────────────────┤
//	              the one named before: a client leaves its peer at once,                           │
//	              a server asks its client to dial anew, relays, then forgets it ◀──────────────────┘
//
// A server that is told to end prepares to relay before another pod is named: until then it relays to itself.
//
// A pod that is told to end goes on until another is named, and stays as it is for as long as it
// cannot learn that.

const (
	// moveFor is how long a server asks its client to dial anew: kube-proxy leads it to the new
	// server within 1 s (its minSyncPeriod); moveEvery is between two requests.
	moveFor, moveEvery = 2 * time.Second, 100 * time.Millisecond
	// fetchEvery is between two looks whether the client comes by itself: dialling anew costs it some
	// 20 ms each time.
	fetchEvery = 300 * time.Millisecond
	// leaveWithin bounds the time a gateway goes on after it was told to end; the pod's grace
	// period, if shorter, ends it before.
	leaveWithin = 25 * time.Second
)

// fabric is our InternalFabric; nil = there is none.
func (g *gateway) fabric() *netv1beta1.InternalFabric {
	for _, f := range g.fabrics.List() {
		if f.Namespace == g.Namespace && f.Name == g.Name && f.DeletionTimestamp == nil {
			return &f
		}
	}
	return nil
}

// named tells whether the tunnel is ours. Before there is an InternalFabric the lease decides; one
// that names nobody, or an address which cannot be one, leaves things as they are.
func (g *gateway) named(own netip.Addr) bool {
	f := g.fabric()
	if f == nil {
		return g.active.Load()
	}
	at, err := netip.ParseAddr(f.Spec.GatewayIP)
	if err != nil || at.IsUnspecified() {
		return g.leads.Load()
	}
	if at = at.Unmap(); at != own.Unmap() {
		g.other.Store(&at)
		return false
	}
	return true
}

// lead begins or ends our having the tunnel.
func (g *gateway) lead(ctx context.Context, leads bool) {
	if g.leads.Load() == leads {
		return
	}
	klog.FromContext(ctx).Info("The pod that has the tunnel changed", "this", leads)
	g.begin(false) // before leads is set: a client that leads redials by what its pings say
	if g.Server {
		g.handing.Store(!leads) // before leads is cleared: a gateway that neither leads nor hands over may exit
	}
	g.leads.Store(leads)
	if g.Server {
		notify(g.turned)
	}
}

// keepHandingOver does a server's part of a move, before or after it.
func (g *gateway) keepHandingOver(ctx context.Context) error {
	var r *relay
	defer func() { r.stop() }()
	for ending := g.ending; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ending:
			if ending = nil; g.Server && g.leads.Load() {
				r = g.relay(ctx, loopback)
			}
			continue
		case <-g.turned:
		}
		if g.leads.Load() {
			g.fetch(ctx)
			continue
		}
		g.handOver(ctx, r)
		r = nil
		g.handing.Store(false)
	}
}

// handOver ends what a server that was superseded has with its client: it asks it to dial anew, over TCP by
// ending the connection, and then forgets where it was, for WireGuard would look for it there and take the
// tunnel back. What still arrives until then is carried, and what comes new is relayed to the successor, by r if that
// is there already.
func (g *gateway) handOver(ctx context.Context, r *relay) {
	if to := g.other.Load(); to != nil {
		if r == nil {
			r = g.relay(ctx, *to)
		}
		r.to.Store(to)
	}
	defer r.stop()
	for end := time.Now().Add(moveFor); !g.leads.Load() && time.Now().Before(end) && ctx.Err() == nil; pause(ctx, moveEvery) {
		if g.TCP {
			g.plane.HangUp()
			continue
		}
		for _, p := range g.pingers() {
			p.say(move, time.Now())
		}
	}
	if !g.leads.Load() {
		g.forget(ctx)
	}
}

// fetch makes a client that comes through the server before us come by itself: it is asked to dial anew
// until it does, for as long as the other may relay, or until we have to hand over ourselves. Over TCP it does
// when the other ends its connection.
func (g *gateway) fetch(ctx context.Context) {
	for end := time.Now().Add(2 * moveFor); g.leads.Load() && time.Now().Before(end); {
		if other := g.other.Load(); !g.TCP && other != nil && g.traffic().Endpoint.Addr().Unmap() == *other {
			g.pinger.say(move, time.Now())
		}
		select {
		case <-ctx.Done():
			return
		case <-g.ending:
			return
		case <-g.turned:
			notify(g.turned)
			return
		case <-time.After(fetchEvery):
		}
	}
}

// forget takes the peer out of the tunnel; the look that follows puts it back, without a place.
func (g *gateway) forget(ctx context.Context) {
	key, _ := g.peer.Load().(string)
	var err error
	for _, device := range g.devices() {
		if key != "" {
			err = errors.Join(err, g.plane.Redial(device, key))
		}
	}
	g.Changed()
	if err != nil {
		klog.FromContext(ctx).Error(err, "The client could not be forgotten")
	}
	g.Look()
}

// outlive returns a context that ends when a gateway told to end by ctx may: it has not the tunnel,
// or handed it over, or nobody needs it any more.
func (g *gateway) outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer end()
		select {
		case <-ctx.Done():
		case <-life.Done():
			return
		}
		klog.FromContext(ctx).Info("Told to end: going on until another pod has the tunnel", "within", leaveWithin)
		limit := time.After(leaveWithin)
		for over := false; g.needed() && !over; {
			select {
			case <-limit:
				over = true
			case <-life.Done():
				return
			case <-time.After(moveEvery): // between looks at what is known anyway
			}
		}
		if g.relays.Swap(nil) != nil { // no successor: the kernel's tunnel keeps working until the container restarts
			ctx, cancel := context.WithTimeout(life, relaySoon)
			defer cancel()
			g.Await(ctx)
		}
	}()
	return life, end
}

// needed tells whether traffic passes here or soon may: nodes are led to us, the client is still
// asked to leave, or we have the turn and nobody followed yet.
func (g *gateway) needed() bool {
	turn := g.LeaderElection && g.active.Load()
	return g.fabric() != nil && g.peer.Load() != "" && (g.leads.Load() || g.handing.Load() || turn)
}
