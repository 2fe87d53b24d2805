// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	kernel "github.com/liqo-go/liqo/network/plan"
)

// counts holds the counters that evidence was taken from last.
type counts struct {
	received int64
	calls    kernel.Calls
	// begun is false until there were counters of this peer.
	begun bool
}

// Probing holds when addresses of the server were probed.
type Probing struct {
	Running bool
	// Next is the time of the next probe.
	Next time.Time
}

// Path holds what is known of the path to the peer.
type Path struct {
	Running bool
	// Fit is the last measurement of the path to this peer; nil = none. Last is the last one of the
	// path to any peer.
	Fit  *Fit
	Last Fit
	// Passes is the length of the longest packet to send, in bytes; 0 = not known.
	Passes int
	// Next is the time of the next measurement, and Tried that of the last attempt.
	Next, Tried time.Time
}

const (
	// probeEvery is the time between two attempts of a client to learn more about a server that
	// does not answer.
	probeEvery = 5 * time.Second
	// measureFirst is the time after the first answer until the path is measured, which the peering
	// need not wait for, and between two attempts. measureAgain is the time until the next
	// measurement if the tunnel's MTU fits, and measureBad if it does not.
	measureFirst, measureAgain, measureBad = time.Second, time.Minute, 10 * time.Second
)

// newEvidence returns the evidence about a peer of which nothing was observed yet.
func newEvidence(o Options) Evidence {
	e := Evidence{
		Namespace: o.Namespace, Name: o.Name, Server: o.Server, TCP: o.TCP, Port: o.Ports()[0],
		Targets: make([]Target, len(o.EndpointAddresses)),
	}
	for n, host := range o.EndpointAddresses {
		e.Targets[n].Host = host
	}
	return e
}

// observe takes evidence from new counters and from probes.
func (e *Evidence) observe(d *decider, fresh bool) {
	for n, at := range d.Dial.addresses() {
		e.Targets[n].At = at
	}
	for n, result := range d.in.Probes {
		switch t := &e.Targets[n]; result {
		case ProbeListening:
			t.Listening = d.now
		case ProbeRefused:
			t.Refused = d.now
		case ProbeUnreachable:
			t.Unreachable = d.now
		case ProbeUnanswered:
		}
	}
	if !fresh {
		return
	}
	traffic, calls, before := d.in.Counters.Traffic[0], d.in.Counters.Calls, d.Counted
	e.Tells, e.Handshake = d.in.Counters.Counted, traffic.Handshake
	d.Counted = counts{received: traffic.Received, calls: calls, begun: true}
	if a := traffic.Endpoint.Addr(); a.IsValid() {
		e.From = a
	}
	if !before.begun {
		return
	}
	if traffic.Received != before.received && traffic.Received > 0 { // less than before: the peer was added again
		if d.now.Sub(e.Heard) > EvidenceFor {
			e.HeardFirst = d.now
		}
		e.Heard = d.now
	}
	for _, c := range []struct {
		now, before int64
		at          *time.Time
	}{
		{calls.Misaddressed, before.calls.Misaddressed, &e.Misaddressed},
		{calls.Strange, before.calls.Strange, &e.Strange},
		{calls.Replayed, before.calls.Replayed, &e.Replayed},
	} {
		if c.now > c.before {
			*c.at = d.now
		}
	}
}

// decide has a client probe the server's port at each address while the server does not answer:
// WireGuard does not respond to a packet beside the tunnel, but routers and hosts may.
func (p *Probing) decide(d *decider) {
	if d.in.Probes != nil {
		*p = Probing{Next: d.now.Add(probeEvery)}
	}
	unanswered := !d.in.Server && d.Holds && d.Peer != "" && d.Tunnels[0].Late(d.now)
	if unanswered && !p.Running && d.due(p.Next) {
		p.Running = true
		d.act(Probe{d.Dial.addresses()})
	}
}

// decide has the path measured now and then: whether packets as long as the tunnel accepts reach
// the peer. Packets that do not are told to be shorter.
func (p *Path) decide(d *decider) {
	first := &d.Tunnels[0]
	if m := d.in.Path; m != nil {
		p.Running, p.Tried = false, d.now
		if m.Done {
			p.Fit, p.Passes, p.Next = &m.Fit, m.Fit.PathMTU(p.Last), d.now.Add(measureBad)
			p.Last = m.Fit
			if fits, _, _ := m.Fit.Verdict(); fits {
				p.Next = d.now.Add(measureAgain)
			}
			d.Report.Due = true
		}
	}
	late := first.Late(d.now)
	if !d.Holds || first.Answered.IsZero() || late && d.now.Sub(first.Open) >= measureFirst {
		p.Next = d.now.Add(measureFirst)
		return
	}
	mtu := d.Reading.MTU
	if !d.in.PingEnabled || p.Running || late || mtu == 0 || !d.due(p.Tried.Add(measureFirst)) {
		return
	}
	if differs := p.Fit != nil && (p.Fit.MTU != mtu || p.Fit.Peer != first.Told); differs || d.due(p.Next) {
		p.Running = true
		d.act(Measure{mtu})
	}
}
