// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/gateway/plan"
	kernel "github.com/liqo-go/liqo/network/plan"
)

const (
	// redialEager is between two attempts to reach a server that never answered: WireGuard itself
	// tries every 5 s, which is long for somebody who waits for a peering. One that did answer is
	// dialled again once plan.Health.Silent.
	redialEager = time.Second
	// redialFirst is before the first of these: what a client said while its server was being replaced is lost.
	// Round trips on Earth take up to 300 ms.
	redialFirst = 300 * time.Millisecond
	// redialLate is the same after redialEagerPings regular ones without an answer, a minute. Every other
	// attempt is from the port where the server was heard last, for longer than the 5 s after which WireGuard
	// there tries again: a server that is not heard itself goes on sending to that port.
	redialLate = 10 * time.Second
	// redialOnce is the time where pings end with the first answer: a peer may answer none, and a handshake
	// needs 2 s to count as one.
	redialOnce       = 5 * time.Second
	redialEagerPings = 30
	// suspectEvery is between two looks whether the tunnel only sends, suspectIdle the same while less than
	// idleBytes pass in each idleTime: pings of both ends twice a second, with their answers, and a handshake.
	suspectEvery, suspectIdle = 200 * time.Millisecond, time.Second
	idleTime, idleBytes       = 2 * time.Second, 4000
)

// dialer knows the server's address. It is empty on servers, to which the client comes.
type dialer struct {
	// hosts are addresses or names of the server. Each leads to it; the first is preferred.
	hosts []string
	port  int
	every time.Duration
	// lookup asks the DNS; again makes it be asked now.
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	again  chan struct{}

	mu    sync.Mutex
	turn  int            // of the host in use
	found []netip.Addr   // of each host; invalid while its name has none
	known [][]netip.Addr // of each name, sorted, those of the pod's family if there are any
}

func newDialer(o Options) *dialer {
	d := &dialer{hosts: o.EndpointAddresses, port: o.EndpointPort, every: o.DNSCheckInterval, again: make(chan struct{}, 1)}
	d.lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}
	for _, host := range d.hosts {
		d.found, d.known = append(d.found, literal(host)), append(d.known, nil)
	}
	return d
}

// literal is the address a host is; invalid for a name.
func literal(host string) netip.Addr {
	a, _ := netip.ParseAddr(host)
	return a.Unmap()
}

// host is the one in use, "" on servers.
func (d *dialer) host() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.hosts) == 0 {
		return ""
	}
	return d.hosts[d.turn]
}

// next turns to the next address of the name, and after its last to the next host, if there are any: a node that
// leads to the server may have failed with it.
func (d *dialer) next() {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.known[d.turn]
	i := slices.Index(known, d.found[d.turn]) + 1
	if len(known) > 0 {
		d.found[d.turn] = known[i%len(known)]
	}
	if len(d.hosts) < 2 || i < len(known) {
		return
	}
	d.turn = (d.turn + 1) % len(d.hosts)
	notify(d.again)
}

// endpoint is where to dial; invalid when there is nothing to dial or no answer yet.
func (d *dialer) endpoint() netip.AddrPort {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.found) == 0 || !d.found[d.turn].IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(d.found[d.turn], uint16(d.port))
}

// addresses are those of all hosts, in their order, the first of a name whichever is in use, so that what is
// said of it stays; invalid where a name has none.
func (d *dialer) addresses() []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := slices.Clone(d.found)
	for n, known := range d.known {
		if len(known) > 0 {
			out[n] = known[0]
		}
	}
	return out
}

// named tells whether there is a name to ask for.
func (d *dialer) named() bool {
	return slices.ContainsFunc(d.hosts, func(host string) bool { return !literal(host).IsValid() })
}

// resolve asks for the name's address when the interval is over or it is asked to, and tells when it
// changed; six is the family of the pod. The last address stays when there is no answer.
func (d *dialer) resolve(ctx context.Context, six func() bool, changed func()) error {
	for failing, wait := false, time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-d.again:
		case <-time.After(wait):
		}
		host := d.host()
		if literal(host).IsValid() {
			wait = max(d.every, redialEager)
			continue
		}
		asked, end := context.WithTimeout(ctx, 5*time.Second) // Go's resolver gives a server as long
		addrs, err := d.lookup(asked, host)
		end()
		if failed := err != nil || len(addrs) == 0; failed {
			if !failing && ctx.Err() == nil {
				klog.FromContext(ctx).Info("The name of the gateway server has no address", "name", host, "error", err)
			}
			failing, wait = true, redialLate
			continue
		}
		failing, wait = false, max(d.every, redialEager)
		if d.take(host, addrs, six()) {
			changed()
		}
	}
}

// take chooses among the addresses of a name: the one in use, for a name with several is no reason to
// move while it answers, else the first of the pod's family, which can be reached, else the first.
func (d *dialer) take(host string, addrs []netip.Addr, six bool) (changed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hosts[d.turn] != host {
		return false // nobody asks for it any more
	}
	var all, reached []netip.Addr
	for _, a := range addrs {
		if a = a.Unmap(); a.Is6() == six {
			reached = append(reached, a)
		}
		all = append(all, a)
	}
	if len(reached) == 0 {
		reached = all
	}
	next := reached[0]
	if slices.Contains(all, d.found[d.turn]) {
		next = d.found[d.turn]
	}
	slices.SortFunc(reached, netip.Addr.Compare)
	d.known[d.turn] = reached
	changed, d.found[d.turn] = next != d.found[d.turn], next
	return changed
}

// keepResolved keeps the address of a server that is known by name.
func (g *gateway) keepResolved(ctx context.Context) error {
	return g.dialer.resolve(ctx, func() (six bool) {
		g.With(func(d *dataplane.Dataplane) {
			_, own, _ := d.Underlay(g.PodIP)
			six = own.Is6()
		})
		return six
	}, g.Look)
}

// attempts are what a client remembers of its attempts to reach the server.
type attempts struct {
	// tunnels are what it heard in each.
	tunnels []heard
	// all is when every tunnel was dialled anew, named when the DNS was asked.
	all, named time.Time
}

// heard is what a client remembers of a tunnel.
type heard struct {
	kernel.Traffic
	// at is when the tunnel last brought something, and port where.
	at, dialled time.Time
	port        int
	// passed is what did since counted; idle tells whether that was next to nothing the last time.
	passed  int64
	counted time.Time
	idle    bool
	// back tells whether the last attempt was from that port.
	back bool
}

// keepDialled makes a client find its server again when it was replaced: without waiting for the API
// server, which may be away.
func (g *gateway) keepDialled(ctx context.Context) error {
	a := attempts{tunnels: make([]heard, len(g.devices()))}
	for {
		asked, late := false, false
		select {
		case <-ctx.Done():
			return nil
		case <-g.pinger.moved:
			asked = true
		case <-g.pinger.late:
			late = true
		case <-time.After(a.nextLook()):
		}
		for n, p := range g.pingers() {
			if a.tunnels[n].listen(g.trafficOf(n), time.Now()) && p.Health().Open.IsZero() {
				notify(p.hurry) // the next regular ping can be seconds away
			}
		}
		if !asked && !late || g.peer.Load() == "" || !g.leads.Load() {
			continue
		}
		if err := g.redial(time.Now(), asked, &a); err != nil {
			klog.FromContext(ctx).Error(err, "The server could not be dialled anew")
		}
	}
}

// listen compares the tunnel with what it was, and tells whether it only sent.
func (h *heard) listen(t kernel.Traffic, now time.Time) (suspicious bool) {
	suspicious = t.Sent > h.Sent && t.Received == h.Received
	if h.counted.IsZero() {
		h.counted = now
	}
	passed := t.Sent - h.Sent + t.Received - h.Received
	h.passed += max(passed, 0)
	if busy := passed < 0 || h.passed >= idleBytes; busy || now.Sub(h.counted) >= idleTime { // less than before: another peer
		h.idle, h.passed, h.counted = !busy, 0, now
	}
	if t.Received > h.Received {
		h.at, h.port = now, t.Port
	}
	h.Traffic = t
	return suspicious
}

// nextLook is the time until the tunnels are compared again.
func (a *attempts) nextLook() time.Duration {
	wait := suspectIdle
	for _, h := range a.tunnels {
		wait = min(wait, h.nextLook())
	}
	return wait
}

// nextLook is the time until the tunnel is compared again.
func (h *heard) nextLook() time.Duration {
	if h.idle {
		return suspectIdle
	}
	return suspectEvery
}

// redial makes a client try the server anew when that is due: asked to by a server that hands over,
// or unanswered – at the address its name has now and, when nothing at all came through a tunnel
// for that time, from the beginning; at its next address when that was tried before.
func (g *gateway) redial(now time.Time, asked bool, a *attempts) error {
	var health []plan.Health
	for _, p := range g.pingers() {
		health = append(health, p.Health())
	}
	due, lookup, next := a.due(now, asked, health, g.Ping)
	if lookup {
		notify(g.dialer.again)
	}
	if next {
		g.dialer.next()
	}
	if len(due) == 0 {
		return nil
	}
	for n, h := range health {
		if !slices.Contains(due, n) && h.Open.IsZero() {
			notify(g.pingers()[n].hurry) // the server may be gone from there also
		}
	}
	key, _ := g.peer.Load().(string)
	var err error
	for _, n := range due {
		h, at, from := &a.tunnels[n], g.dialer.endpoint(), g.ListenPort
		if n > 0 {
			at, from = netip.AddrPortFrom(at.Addr(), uint16(g.MoreEndpointPorts[n-1])), 0
		}
		if h.back = h.back && from == 0 && !g.TCP; h.back {
			from = h.port
		}
		err = errors.Join(err, g.plane.DialAnew(api.TunnelInterface(n), key, at, from))
		h.Traffic = kernel.Traffic{} // a peer's counters start at zero when it is added again
	}
	g.Changed()
	return err
}

// due picks the tunnels to begin anew: all when the server answers in none, else those in which it does not.
// It tells whether to ask the DNS, and whether the server's next address is to be tried.
func (a *attempts) due(now time.Time, asked bool, health []plan.Health, p plan.PingPolicy) (due []int, lookup, next bool) {
	var last time.Time // when something came through any
	answers, brings, soonest := false, false, redialLate
	waits := make([]time.Duration, len(health))
	for n, h := range health {
		t := &a.tunnels[n]
		if t.at.After(last) {
			last = t.at
		}
		if n > 0 && h.Answered.IsZero() && now.Sub(t.Handshake) < handshakeLasts {
			continue // it may answer pings in the first only: this one goes with the others
		}
		wait, overdue := redialDue(now, asked, t.dialled.After(h.Answered), h, p)
		if !overdue {
			answers = true
			continue
		}
		waits[n], soonest = wait, min(soonest, wait)
		switch {
		case !asked && now.Sub(t.at) < wait:
			brings = true
		case now.Sub(t.dialled) >= wait:
			due = append(due, n)
		}
	}
	paused := now.Sub(a.all) >= soonest
	if lookup = !asked && !answers && paused && now.Sub(a.named) >= redialEager; lookup {
		a.named = now
	}
	if !answers && !brings {
		due = nil
		if paused {
			next, a.all = !asked && a.all.After(last), now
			for n := range health {
				due = append(due, n)
			}
		}
	}
	for _, n := range due {
		t := &a.tunnels[n]
		t.dialled, t.back = now, waits[n] == redialLate && !t.back
	}
	return due, lookup, next
}

// redialDue reports whether to dial the server again, and the minimum time since the last attempt. tried is true if
// the server was dialled since its last answer: packets in flight are lost by then, so one late answer is enough.
func redialDue(now time.Time, asked, tried bool, h plan.Health, p plan.PingPolicy) (wait time.Duration, due bool) {
	since := h.Answered
	if since.IsZero() {
		since = h.Started
	}
	switch {
	case asked:
		return moveEvery, true
	case now.Sub(since) >= redialEagerPings*p.Interval:
		return redialLate, h.Late(now)
	case h.Answered.IsZero() && p.Once:
		return redialOnce, now.Sub(h.Started) >= redialFirst
	case h.Answered.IsZero():
		return redialEager, now.Sub(h.Started) >= redialFirst
	}
	return h.Patience(), h.Silent(now) || tried && h.Late(now)
}
