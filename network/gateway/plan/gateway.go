// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides what a gateway does over time: whether it has the tunnel, when it pings,
// where it dials, how it hands over, and what its Connection says. It is pure:
//
//	Sight, State, time ─▶ Gateway ─▶ State, Want, actions, time of the next decision
//
// One goroutine of network/gateway calls Gateway for each event and at the time it asked for. What
// the kernel contains is planned in network/plan.
package plan

import (
	"net/netip"
	"reflect"
	"slices"
	"time"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// Sight holds what the process observed. Only readers write it; nothing in it is desired.
type Sight struct {
	Options
	Objects Objects
	// Own is the address of this pod; invalid until the kernel was read.
	Own netip.Addr
	// Looked is the Revision of the last look at the kernel, whether or not it succeeded.
	Looked int
	// Failing describes why the kernel is not in the desired state; nil = it is.
	Failing *Failing
	Leader  Leader
	// Connection is the gateway's Connection in the cache; nil = there is none.
	Connection *netv1beta1.Connection
	// Stop is the time when the process was told to end; zero = not yet.
	Stop time.Time
	News
}

// News holds what happened since the last decision.
type News struct {
	// Answers holds answers to pings.
	Answers []Answer
	// Moved reports that the peer's gateway asked the client to dial again.
	Moved bool
	// ConnectionChanged reports that Sight.Connection did.
	ConnectionChanged bool
	// These are results of actions of the same names; nil = none.
	Counters  *Counters
	Redialled bool
	Resolved  *Resolved
	Relays    *[]kernel.Relay
	Probes    []Probed
	Path      *Measured
	Written   *Written
}

// Objects holds what the API objects say about the tunnel.
type Objects struct {
	// Complete reports whether all objects were listed.
	Complete bool
	// PeerKey is the public key of the peer in base64; "" = not known.
	PeerKey string
	// GatewayIP is that of the InternalFabric; nil = there is no InternalFabric.
	GatewayIP *string
}

// Leader holds the result of the election between replicas.
type Leader struct {
	// Active reports whether this replica holds the lease, as far as it knows.
	Active bool
	// Turn counts the leaders up to this replica's last election; 0 = there is no election.
	Turn int64
	// Renewed is the time when the lease was last read or renewed; zero = never.
	Renewed time.Time
}

// Failing describes why the kernel is not in the desired state, and since when.
type Failing struct {
	Since   time.Time
	Message string
}

// State holds what a gateway remembers. Only Gateway writes it.
type State struct {
	// Peer is the public key in use, in base64; "" = not known.
	Peer string
	// Active reports whether this replica holds the lease, or there is no election.
	Active bool
	// Holds reports whether this pod has the tunnel, because nodes are routed to it.
	Holds bool
	// Fenced reports that this replica gave up the tunnel: the peer is connected to a later leader
	// while the lease cannot be read. Renewed is the time of the lease considered last.
	Fenced  bool
	Renewed time.Time
	// Other is the address of the pod that has the tunnel, or had it before; invalid = not known.
	Other   netip.Addr
	Tunnels []Tunnel
	// Silent are the numbers of tunnels in which the peer does not answer.
	Silent   []int
	Reading  Reading
	Dial     Dial
	Handover Handover
	Evidence Evidence
	Counted  counts
	Probing  Probing
	Path     Path
	Report   Report
	Ending   Ending
	Want     Want
	// Revision counts the changes of Want.
	Revision int
}

// Want holds what is desired of the kernel beside what the API objects say.
type Want struct {
	// PeerKey is empty while the tunnel has no peer.
	PeerKey string
	// Endpoint is the address that a client dials; invalid = none.
	Endpoint netip.AddrPort
	// Silent are the numbers of tunnels that carry nothing while others do.
	Silent []int
	// Passes is the length of the longest packet that reaches the peer, in bytes; 0 = not known.
	Passes int
	Relays []kernel.Relay
}

// Decision follows from a sight.
type Decision struct {
	State State
	// Look requests that the kernel is compared with State.Want.
	Look bool
	// Actions are started in order, without waiting for them.
	Actions []Action
	// Log holds messages about changes.
	Log []Message
	// Wake is the time to decide again without an event; zero = never.
	Wake time.Time
}

// Message is a line of the log with keys and values in turn.
type Message struct {
	Text   string
	Values []any
}

// decider makes one decision on a copy of the state. The parts of the state decide for themselves,
// with it as their view of the others.
type decider struct {
	State
	in       Sight
	now      time.Time
	decision Decision
}

// Gateway decides. The work does not grow with the number of peers.
func Gateway(in Sight, before State, now time.Time) Decision {
	d := &decider{State: before, in: in, now: now}
	d.begin()
	d.elect()
	d.follow()
	d.answers()
	fresh := d.Reading.take(d)
	d.Dial.take(d)
	d.Dial.redial(d, fresh)
	d.Dial.lookUp(d)
	d.Handover.decide(d, fresh)
	d.ping()
	d.spread()
	d.Evidence.observe(d, fresh)
	d.Probing.decide(d)
	d.Path.decide(d)
	d.Report.decide(d, fresh)
	d.Reading.decide(d)
	d.Ending.decide(d)
	if want := d.want(); !reflect.DeepEqual(want, d.Want) {
		d.Want, d.Revision, d.decision.Look = want, d.Revision+1, true
	}
	d.Ending.end(d)
	d.decision.State = d.State
	return d.decision
}

// begin creates the state at the start of the process, and copies slices that the state before
// shares.
func (d *decider) begin() {
	if d.Tunnels == nil {
		for range d.in.Devices() {
			d.Tunnels = append(d.Tunnels, Tunnel{Health: Health{Started: d.now}})
		}
		d.Dial = newDial(d.in.EndpointAddresses)
		d.Evidence = newEvidence(d.in.Options)
	}
	d.Tunnels, d.Dial = slices.Clone(d.Tunnels), d.Dial.clone()
	d.Evidence.Targets = slices.Clone(d.Evidence.Targets)
}

// act starts an action.
func (d *decider) act(a Action) { d.decision.Actions = append(d.decision.Actions, a) }

// log adds a message to the log.
func (d *decider) log(text string, values ...any) {
	d.decision.Log = append(d.decision.Log, Message{text, values})
}

// due reports whether a time has come. If not, Gateway is called then.
func (d *decider) due(at time.Time) bool {
	if !d.now.Before(at) {
		return true
	}
	if d.decision.Wake.IsZero() || at.Before(d.decision.Wake) {
		d.decision.Wake = at
	}
	return false
}

// elect considers the lease. A replica gives up its turn only when it sees another holder of the
// lease, never because it cannot reach the API server, unless the peer reports a later leader.
func (d *decider) elect() {
	if active := d.in.Leader.Active || !d.in.LeaderElection; active != d.Active {
		d.Active = active
		d.log("The active replica of the gateway changed", "active", active)
	}
	if renewed := d.in.Leader.Renewed; !renewed.Equal(d.Renewed) {
		d.Renewed, d.Fenced = renewed, d.Fenced && !d.Active
	}
}

// superseded makes a client give up the tunnel when another replica has it and only the peer can
// say so, because this pod is cut off from the API server: two that dial with one key would take
// the tunnel from each other. A peer of another implementation says nothing. While the API server
// is away for all, no replica has a later turn.
func (d *decider) superseded() {
	last := d.in.Leader.Renewed
	if d.in.Server || d.Fenced || last.IsZero() || d.now.Sub(last) < d.in.Lease.Duration {
		return
	}
	d.Fenced = true
	d.log("Giving up the tunnel: the peer is connected to a later replica")
	d.follow()
}

// follow takes from the API objects who the peer is and whether this pod has the tunnel:
//
//	lease, with replicas ─▶ controller ─▶ label on the pod ─▶ Service, controller ─▶ InternalFabric
//	                                                                                        │
//	          the named pod: a client dials, a server answers ◀─────────────────────────────┤
//	          the pod named before: a client removes its peer at once; a server asks its    │
//	          client to dial again, relays, then forgets it ◀───────────────────────────────┘
//
// A pod that is told to end goes on until another is named. It stays as it is for as long as it
// cannot learn that.
func (d *decider) follow() {
	o := d.in.Objects
	if !o.Complete || !d.in.Own.IsValid() {
		return
	}
	if before := d.Peer; before != o.PeerKey {
		d.Peer = o.PeerKey
		d.restart(before != "")
	}
	routed := d.routed()
	d.Fenced = d.Fenced && routed // otherwise the InternalFabric names another, too
	if holds := routed && !d.Fenced; holds != d.Holds {
		d.Holds = holds
		d.log("The pod that has the tunnel changed", "this", holds)
		d.decision.Look = true // at users' rules: only this pod reports on them
		d.restart(false)
		if d.in.Server {
			d.Handover.turn(d)
		}
	}
}

// routed reports whether nodes are routed to this pod. Without an InternalFabric the lease decides.
// One that names no pod, or an invalid address, changes nothing.
func (d *decider) routed() bool {
	if d.in.Objects.GatewayIP == nil {
		return d.Active
	}
	at, err := netip.ParseAddr(*d.in.Objects.GatewayIP)
	if err != nil || at.IsUnspecified() {
		return d.Holds
	}
	if at = at.Unmap(); at != d.in.Own.Unmap() {
		d.Other = at
		return false
	}
	return true
}

// restart forgets the results of pings, because another peer is at the other end, or none. renewed
// reports whether it replaces a former one.
func (d *decider) restart(renewed bool) {
	for n := range d.Tunnels {
		t := &d.Tunnels[n]
		t.Health = Health{Started: d.now, Renewed: renewed, Keyless: d.Peer == ""}
		t.Answers, t.Hurry = false, true
	}
	d.Evidence, d.Counted, d.Path.Fit = newEvidence(d.in.Options), counts{}, nil
	d.Report.Value, d.Report.Due = "", true
}

// want returns what is desired of the kernel. A client without the tunnel has no peer: two pods
// that dial with one key would take the tunnel from each other.
func (d *decider) want() Want {
	w := Want{Silent: d.Silent, Passes: d.Path.Passes}
	switch {
	case d.in.Server:
		w.PeerKey, w.Relays = d.Peer, d.Handover.Relays
	case d.Holds:
		w.PeerKey, w.Endpoint = d.Peer, d.Dial.endpoint(d.in.EndpointPort)
	}
	return w
}
