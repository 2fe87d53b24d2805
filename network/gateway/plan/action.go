// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"time"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// Action is something to do. If it has a result, that is part of the News of a later sight.
type Action any

type (
	// End ends the process.
	End struct{}
	// Send sends a message in a tunnel. Sent identifies a ping.
	Send struct {
		Tunnel int
		Type   string
		Sent   time.Time
		// Turn is that of Leader.
		Turn int64
	}
	// Count reads the counters of the tunnels with a peer, and the MTU of the first if MTU is set.
	Count struct {
		Peer string
		MTU  bool
	}
	// LookUp asks the DNS for the addresses of a host.
	LookUp struct{ Host string }
	// Redial starts new handshakes in tunnels with a peer.
	Redial struct {
		Peer  string
		Dials []Dialling
	}
	// HangUp closes the TCP connections of clients.
	HangUp struct{}
	// Forget removes the peer from all tunnels. The kernel is looked at afterwards, which adds it
	// again without an endpoint.
	Forget struct{ Peer string }
	// OpenRelay relays what comes new for the tunnels to those of another pod. If a relay is open,
	// it changes its destination.
	OpenRelay struct{ To netip.Addr }
	// CloseRelay closes its sockets.
	CloseRelay struct{}
	// Probe sends packets beside the tunnel to the port of the server at each valid address.
	Probe struct{ Addresses []netip.Addr }
	// Measure finds the longest packet that reaches the peer, up to the MTU, in bytes.
	Measure struct{ MTU int }
	// EnsureConnection creates or corrects the Connection.
	EnsureConnection struct{ Want *netv1beta1.Connection }
	// WriteStatus writes the status of the Connection.
	WriteStatus struct{ Connection *netv1beta1.Connection }
)

// Dialling describes a new handshake in a tunnel.
type Dialling struct {
	Tunnel int
	// At is the address of the server; invalid = the one configured.
	At netip.AddrPort
	// From is the local port; 0 = any.
	From int
}

// Counters is the result of Count.
type Counters struct {
	// Traffic holds the counters of each tunnel.
	Traffic []kernel.Traffic
	// Calls holds the refused handshakes of the first tunnel, if Counted.
	Calls   kernel.Calls
	Counted bool
	// Implementation is that of WireGuard.
	Implementation string
	// MTU is that of the first tunnel, in bytes; 0 = not known.
	MTU int
}

// Resolved is the result of LookUp.
type Resolved struct {
	Host  string
	Found []netip.Addr
	// Err is empty if the DNS answered.
	Err string
}

// Probed is the result of Probe for an address.
type Probed int

// These are the results of a probe.
const (
	ProbeUnanswered Probed = iota
	ProbeListening
	ProbeRefused
	ProbeUnreachable
)

// Measured is the result of Measure.
type Measured struct {
	Fit Fit
	// Done is false if the peer did not answer to short packets either.
	Done bool
}

// Written is the result of EnsureConnection and WriteStatus.
type Written struct {
	// Connection is as the API server has it; nil = the gateway is being removed.
	Connection *netv1beta1.Connection
	// Status reports whether its status was written.
	Status bool
	Failed bool
}

// Answer is the peer's answer to a ping.
type Answer struct {
	Tunnel int
	// Sent identifies the ping, and At is the time of the answer.
	Sent, At time.Time
	// MTU of the peer's tunnel in bytes; 0 = not told.
	MTU int
	// Turn is the latest turn of those that pinged the peer; 0 = not told.
	Turn int64
}

// Types of messages between two gateways.
const (
	Ping = "PING"
	Pong = "PONG"
	// Move asks a client to dial again. Other implementations ignore it.
	Move = "MOVE"
)
