// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/liqo-go/liqo/network/gateway/plan"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// message of the health check between two gateways, over UDP in the tunnel. Peers may run another
// implementation: a PING is sent back unchanged but for its type. They ignore MOVE, and then lose
// time, not the connection.
type message struct {
	ClusterID string    `json:"clusterID"`
	Type      string    `json:"msgType"`
	Time      time.Time `json:"timeStamp"`
	// MTU is that of the tunnel at the side that answers, in bytes; 0 = not known.
	MTU int `json:"mtu,omitempty"`
	// Turn is that of the replica that sends a PING. A PONG has the latest turn of the replicas that
	// sent one lately; 0 = not known.
	Turn int64 `json:"turn,omitempty"`
}

const (
	// turnFor is how long a turn is remembered. Two replicas that take the tunnel from each other
	// ping within a second.
	turnFor = 10 * time.Second
	// messageLimit is the longest message read, in bytes: cluster ID 51, time 35, names 40.
	messageLimit = 1024
	// openLimit bounds the memory of pings without an answer, which comes within a few.
	openLimit = 64
	// sendFor bounds a write to a full buffer, whose packets would be late anyway.
	sendFor = 20 * time.Millisecond
)

// socket sends messages in a tunnel, answers the peer's pings, and passes on its answers.
type socket struct {
	own, peer netip.AddrPort
	// answered and moved are called for answers to pings and for MOVE.
	answered func(plan.Answer)
	moved    func()

	mu   sync.Mutex
	conn *net.UDPConn // nil = not open
	// mtu is that of the local tunnel, in bytes; 0 = not known.
	mtu int
	// open holds when the pings that are not answered yet were sent, the latest last.
	open []time.Time
	// latest is the latest turn of the peer's replicas, and latestAt the time of its ping.
	latest   int64
	latestAt time.Time
}

// openSockets returns a socket for each tunnel, whose messages become events.
func (g *gateway) openSockets(ctx context.Context) (out []*socket) {
	own, peer := g.Addresses()
	for n := range g.Devices() {
		local, remote := own, peer
		if n > 0 {
			local, remote = kernel.FurtherEnds(own, peer, n)
		}
		port := uint16(g.PingPort)
		s := &socket{own: netip.AddrPortFrom(local.Addr(), port), peer: netip.AddrPortFrom(remote, port)}
		s.answered = func(a plan.Answer) {
			if a.Tunnel = n; n == 0 {
				g.trips.Observe(float64(a.At.Sub(a.Sent).Microseconds()))
			}
			g.tell(ctx, func(s *plan.Sight) { s.Answers = append(s.Answers, a) })
		}
		s.moved = func() {
			if !g.Server {
				notify(g.moved)
			}
		}
		out = append(out, s)
	}
	return out
}

// send sends a message. One that cannot leave is lost like one that is not answered. A ping opens
// the socket if that is not open: the address of the tunnel may not be there before.
func (s *socket) send(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Type == plan.Ping {
		s.listen()
		s.open = append(s.open[max(0, len(s.open)-openLimit+1):], m.Time)
	}
	if s.conn != nil {
		write(s.conn, s.peer, m)
	}
}

func write(conn *net.UDPConn, to netip.AddrPort, m message) {
	m.Time = m.Time.Round(0) // without the monotonic clock, as it comes back
	text, _ := json.Marshal(m)
	_ = conn.SetWriteDeadline(time.Now().Add(sendFor))
	_, _ = conn.WriteToUDPAddrPort(text, to)
}

// listen opens the socket unless it is open, and reads from it until it is closed.
func (s *socket) listen() {
	if s.conn != nil {
		return
	}
	if conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(s.own)); err == nil {
		s.conn = conn
		go s.read(conn)
	}
}

func (s *socket) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		s.conn.Close()
	}
}

func (s *socket) setMTU(mtu int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mtu = mtu
}

// read reads until the socket is closed.
func (s *socket) read(conn *net.UDPConn) {
	buffer := make([]byte, messageLimit)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		var m message
		if from.Addr().Unmap() != s.peer.Addr() || json.Unmarshal(buffer[:n], &m) != nil {
			continue
		}
		now := time.Now()
		switch m.Type {
		case plan.Ping:
			write(conn, from, s.answer(m, now))
		case plan.Pong:
			if sent := s.match(m.Time); !sent.IsZero() {
				s.answered(plan.Answer{Sent: sent, At: now, MTU: m.MTU, Turn: m.Turn})
			}
		case plan.Move:
			s.moved()
		}
	}
}

// answer returns the answer to a ping.
func (s *socket) answer(m message, now time.Time) message {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Type, m.MTU = plan.Pong, s.mtu
	if m.Turn <= 0 {
		m.Turn = 0
		return m
	}
	if m.Turn >= s.latest || now.Sub(s.latestAt) >= turnFor {
		s.latest, s.latestAt = m.Turn, now
	}
	m.Turn = s.latest
	return m
}

// match returns when the ping was sent that an answer belongs to; zero = never. A made-up answer
// says nothing and wakes nobody.
func (s *socket) match(sent time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, t := range s.open {
		if t.Equal(sent) {
			s.open = s.open[i+1:]
			return t
		}
	}
	return time.Time{}
}
