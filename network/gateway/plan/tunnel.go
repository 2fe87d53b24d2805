// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
	"time"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// Tunnel holds what a gateway remembers of a tunnel.
type Tunnel struct {
	Health
	// Pinged is the time of the last ping.
	Pinged time.Time
	// Hurry requests a ping before its time.
	Hurry bool
	// Answers reports whether a ping was answered; not every gateway answers.
	Answers bool
	// Told is the MTU that the peer's last answer told, in bytes; 0 = none.
	Told int
	heard
}

// heard holds what a client remembers of the traffic in a tunnel.
type heard struct {
	Traffic kernel.Traffic
	// At is the time when the tunnel last brought something, Port the local port of that, and From the
	// address it came from.
	At   time.Time
	Port int
	From netip.AddrPort
	// Dialled is the time of the last new handshake. Back reports whether it was from Port to From.
	Dialled time.Time
	Back    bool
	// Passed is the number of bytes since Counted. Idle reports whether it was next to nothing the
	// last time.
	Passed  int64
	Counted time.Time
	Idle    bool
}

const (
	// suspectEvery is the time between two readings of the counters by a client, which find a
	// tunnel that only sends. It is suspectIdle while less than idleBytes pass in each idleTime:
	// pings of both ends twice a second, with their answers, and a handshake.
	suspectEvery, suspectIdle = 200 * time.Millisecond, time.Second
	idleTime, idleBytes       = 2 * time.Second, 4000
	// mtuEvery is the time between two readings of the local tunnel's MTU.
	mtuEvery = 5 * time.Second
	// spreadEvery is the time between two checks which tunnels answer.
	spreadEvery = 500 * time.Millisecond
	// handshakeLasts is how long a WireGuard session may be used (REJECT_AFTER_TIME).
	handshakeLasts = 180 * time.Second
)

// listen compares the counters with the former ones, and reports whether the tunnel only sent.
func (h *heard) listen(t kernel.Traffic, now time.Time) (suspicious bool) {
	suspicious = t.Sent > h.Traffic.Sent && t.Received == h.Traffic.Received
	if h.Counted.IsZero() {
		h.Counted = now
	}
	passed := t.Sent - h.Traffic.Sent + t.Received - h.Traffic.Received
	h.Passed += max(passed, 0)
	busy := passed < 0 || h.Passed >= idleBytes // less than before: another peer
	if busy || now.Sub(h.Counted) >= idleTime {
		h.Idle, h.Passed, h.Counted = !busy, 0, now
	}
	if t.Received > h.Traffic.Received {
		h.At, h.Port, h.From = now, t.Port, t.Endpoint
	}
	h.Traffic = t
	return suspicious
}

// every returns the time between two readings of the counters.
func (h *heard) every() time.Duration {
	if h.Idle {
		return suspectIdle
	}
	return suspectEvery
}

// Reading holds when the counters were read.
type Reading struct {
	Running bool
	// Stale reports that tunnels were dialled since the running reading began.
	Stale bool
	// Requested reports that a decision waits for counters.
	Requested bool
	// At is the time of the last counters, and MTUAt that of the last MTU.
	At, MTUAt time.Time
	// MTU is that of the first tunnel, in bytes; 0 = not known.
	MTU int
}

// take considers new counters, and reports whether there are any.
func (r *Reading) take(d *decider) (fresh bool) {
	c := d.in.Counters
	if c == nil {
		return false
	}
	if r.Running = false; r.Stale {
		r.Stale, r.Requested = false, true
		return false
	}
	if r.Requested, r.At = false, d.now; c.MTU != 0 {
		r.MTU = c.MTU
	}
	for n := range d.Tunnels {
		t := &d.Tunnels[n]
		// The next regular ping can be seconds away.
		if t.listen(c.Traffic[n], d.now) && !d.in.Server && t.Open.IsZero() {
			t.Hurry = true
		}
	}
	if first := &d.Tunnels[0]; d.in.Ping.Once {
		first.Health = first.Shaken(first.Traffic.Handshake, d.now)
	}
	return true
}

// decide has the counters read when a decision waits for them, and regularly: by clients to find out
// that a tunnel only sends, by servers because handshakes and MTU count whatever is reported.
func (r *Reading) decide(d *decider) {
	every := mtuEvery
	if !d.in.Server {
		every = suspectIdle
		for _, t := range d.Tunnels {
			every = min(every, t.every())
		}
	}
	r.Requested = d.due(r.At.Add(every)) || r.Requested
	if r.Running || !r.Requested {
		return
	}
	mtu := r.MTU == 0 || d.now.Sub(r.MTUAt) >= mtuEvery
	if r.Running = true; mtu {
		r.MTUAt = d.now
	}
	d.act(Count{Peer: d.Peer, MTU: mtu})
}

// answers considers what the peer sent.
func (d *decider) answers() {
	for _, a := range d.in.Answers {
		t := &d.Tunnels[a.Tunnel]
		if a.Sent.Before(t.Started) {
			continue // of a former peer
		}
		t.Health = t.Answer(a.At, a.At.Sub(a.Sent))
		t.Answers, t.Told = true, a.MTU
		d.Report.Due = true
		if own := d.in.Leader.Turn; own > 0 && a.Turn > own {
			d.superseded()
		}
	}
}

// ping sends the pings that are due. Answers and their lack change when that is.
func (d *decider) ping() {
	for n := range d.Tunnels {
		t := &d.Tunnels[n]
		after := t.PingAfter(d.now, d.in.Ping)
		// Before its time only a ping that may be answered is worth sending.
		now := t.Hurry && (!d.in.Ping.Once || t.Answers || t.Answered.IsZero())
		t.Hurry = false
		if !now && (after == never || !d.due(t.Pinged.Add(after))) {
			continue
		}
		t.Health, t.Pinged = t.Asked(d.now), d.now
		d.send(n, Ping)
		d.due(t.Pinged.Add(t.PingAfter(d.now, d.in.Ping)))
		d.Report.Due = true
		d.Reading.Requested = d.Reading.Requested || !d.in.Server // an answer may be late
	}
}

func (d *decider) send(tunnel int, what string) {
	d.act(Send{Tunnel: tunnel, Type: what, Sent: d.now, Turn: d.in.Leader.Turn})
}

// spread updates which tunnels are silent, so that traffic moves to other tunnels, and back.
func (d *decider) spread() {
	if len(d.Tunnels) < 2 || !d.in.PingEnabled {
		return
	}
	if silent := d.silent(); !slices.Equal(silent, d.Silent) {
		d.Silent, d.Report.Due = silent, true
	}
	d.due(d.now.Add(spreadEvery))
}

// silent returns the numbers of the tunnels in which the peer does not answer. One that never
// answered pings is not silent while WireGuard has a handshake: a peer may answer in the first
// only.
func (d *decider) silent() (out []int) {
	for n, t := range d.Tunnels {
		switch {
		case t.Connection(d.now, netv1beta1.Connecting, d.in.Ping) == netv1beta1.Connected:
		case t.Answered.IsZero() && d.now.Sub(t.Traffic.Handshake) < handshakeLasts:
		default:
			out = append(out, n)
		}
	}
	return out
}

// Connection returns the health of the first tunnel in which the peer answers, else that of the
// first tunnel, and the state of the connection, given its last one.
func (s State) Connection(now time.Time, last netv1beta1.ConnectionStatusValue, policy PingPolicy) (
	Health, netv1beta1.ConnectionStatusValue) {
	for _, t := range s.Tunnels {
		if t.Health.Connection(now, last, policy) == netv1beta1.Connected {
			return t.Health, netv1beta1.Connected
		}
	}
	h := s.Tunnels[0].Health
	return h, h.Connection(now, last, policy)
}
