// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"time"

	kernel "github.com/liqo-go/liqo/network/plan"
)

const (
	// moveFor is how long a server asks its client to dial again: kube-proxy leads it to the new
	// server within 1 s (its minSyncPeriod). moveEvery is the time between two requests.
	moveFor, moveEvery = 2 * time.Second, 100 * time.Millisecond
	// fetchEvery is the time between two checks whether the client comes by itself: each new
	// handshake costs it some 20 ms.
	fetchEvery = 300 * time.Millisecond
)

// loopback is the address of the tunnels of this pod.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// Handover holds what a server does before and after nodes are routed to another pod, or to this
// one.
//
//	Idle ─▶ Fetching        nodes are routed here: the client is asked to dial again while it comes
//	                        through the server before this one, for as long as that may relay
//	     ─▶ OpeningRelay    nodes are routed elsewhere: what comes new is relayed to the successor
//	     ─▶ Asking          the client is asked to dial again, and is forgotten at the end: WireGuard
//	                        would look for it and take the tunnel back
//
// A server that is told to end opens its relay before another is named. Until then it relays to
// itself.
type Handover struct {
	Phase Phase
	// Until is the end of the phase, and Next the time of its next step.
	Until, Next time.Time
	// Prepared reports that a relay was opened because the process ends.
	Prepared bool
	// Open reports that a relay was opened. Relays redirect what comes new to its sockets; nil = not
	// known yet. Revision is the first of Want that contains them.
	Open     bool
	Relays   []kernel.Relay
	Revision int
}

// Phase is a step of a handover.
type Phase int

// These are the phases of a handover.
const (
	Idle Phase = iota
	Fetching
	OpeningRelay
	Asking
)

// enter begins a phase.
func (h *Handover) enter(p Phase, now time.Time, lasts time.Duration) {
	h.Phase, h.Until, h.Next = p, now.Add(lasts), now
}

// turn begins a server's part of a move. It is called when the server gets or loses the tunnel.
func (h *Handover) turn(d *decider) {
	switch {
	case d.Holds:
		if h.Phase == OpeningRelay || h.Phase == Asking {
			h.closeRelay(d)
		}
		h.enter(Fetching, d.now, 2*moveFor)
	case d.Other.IsValid():
		// kube-proxy may lead the client here for up to 1 s. A client that is asked before the
		// relay works would come back here.
		h.openRelay(d, d.Other)
		h.enter(OpeningRelay, d.now, lookWithin)
	default:
		h.enter(Asking, d.now, moveFor)
	}
}

func (h *Handover) openRelay(d *decider, to netip.Addr) {
	h.Open = true
	d.act(OpenRelay{to})
}

func (h *Handover) closeRelay(d *decider) {
	if h.Open {
		h.Open, h.Relays = false, nil
		d.act(CloseRelay{})
	}
}

// decide continues a handover.
func (h *Handover) decide(d *decider, fresh bool) {
	if r := d.in.Relays; r != nil && h.Open {
		h.Relays, h.Revision = *r, d.Revision+1
	}
	if !d.in.Stop.IsZero() && d.in.Server && d.Holds && !h.Prepared {
		h.Prepared, h.Phase = true, Idle
		h.openRelay(d, loopback)
	}
	switch h.Phase {
	case Fetching:
		h.fetch(d, fresh)
	case OpeningRelay:
		if h.Relays != nil && d.in.Looked >= h.Revision || d.due(h.Until) {
			h.enter(Asking, d.now, moveFor)
			h.ask(d)
		}
	case Asking:
		h.ask(d)
	case Idle:
	}
}

// fetch asks a client that comes through the server before this one to dial again. Over TCP it does
// when the other server ends its connection.
func (h *Handover) fetch(d *decider, fresh bool) {
	if d.due(h.Until) {
		h.Phase = Idle
		return
	}
	from := d.Tunnels[0].Traffic.Endpoint.Addr().Unmap()
	if fresh && !d.in.TCP && from.IsValid() && from == d.Other {
		d.send(0, Move)
	}
	if d.due(h.Next) {
		h.Next, d.Reading.Requested = d.now.Add(fetchEvery), true
		d.due(h.Next)
	}
}

// ask asks the client to dial again, over TCP by ending its connection, and at last forgets it.
func (h *Handover) ask(d *decider) {
	if d.due(h.Until) {
		h.Phase = Idle
		h.closeRelay(d)
		if d.Peer != "" {
			d.act(Forget{d.Peer})
		}
		return
	}
	if !d.due(h.Next) {
		return
	}
	h.Next = d.now.Add(moveEvery)
	d.due(h.Next)
	if d.in.TCP {
		d.act(HangUp{})
		return
	}
	for n := range d.Tunnels {
		d.send(n, Move)
	}
}

const (
	// leaveWithin bounds the time until an ending gateway is no longer needed. It is below the 30 s
	// that pods have by default, so that one look at the kernel follows.
	leaveWithin = 25 * time.Second
	// lookWithin bounds the wait for a look at the kernel, which takes some 20 ms.
	lookWithin = time.Second
)

// Ending holds how far a process is that was told to end.
type Ending struct {
	// Told reports that the process was told to end.
	Told bool
	// Unneeded reports that only its last look at the kernel is waited for. A busy machine may take
	// seconds for it, and the pod's grace period ends the wait.
	Unneeded bool
}

// decide lets a process that was told to end go on while traffic passes here: it has the tunnel or
// hands it over, or no other replica holds the lease yet. Afterwards rules that redirect to its
// sockets are removed.
func (e *Ending) decide(d *decider) {
	if d.in.Stop.IsZero() || e.Unneeded {
		return
	}
	if !e.Told {
		e.Told = true
		d.log("Told to end: going on until another pod has the tunnel", "within", leaveWithin)
	}
	handing := d.Handover.Phase == OpeningRelay || d.Handover.Phase == Asking
	elected := d.in.LeaderElection && d.Active
	needed := d.in.Objects.GatewayIP != nil && d.Peer != "" && (d.Holds || handing || elected)
	if needed && !d.due(d.in.Stop.Add(leaveWithin)) {
		return
	}
	d.Handover.Relays, e.Unneeded = nil, true
}

// end ends the process after a look at the kernel.
func (e *Ending) end(d *decider) {
	if e.Unneeded && d.in.Looked == d.Revision {
		d.act(End{})
	}
}
