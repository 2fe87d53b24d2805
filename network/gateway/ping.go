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
	"sync/atomic"
	"time"

	"github.com/liqo-go/liqo/network/daemon"
	"github.com/liqo-go/liqo/network/gateway/plan"
)

// message of the health check between two gateways, UDP inside the tunnel. Peers may run another
// implementation: a PING is sent back as it came, with the type changed. They do not know MOVE, by
// which a server asks its client to dial anew, and lose time, not the connection.
type message struct {
	ClusterID string    `json:"clusterID"`
	Type      string    `json:"msgType"`
	Time      time.Time `json:"timeStamp"`
	// MTU of the tunnel at the side that answers, in bytes; 0 = it does not tell.
	MTU int `json:"mtu,omitempty"`
	// Turn of the replica that sends a PING; a PONG has the latest turn of those that did lately. 0 = not known.
	Turn int64 `json:"turn,omitempty"`
}

const (
	ping = "PING"
	pong = "PONG"
	move = "MOVE"
)

// turnFor is how long a turn is remembered. Two replicas that take the tunnel from each other ping within a second.
const turnFor = 10 * time.Second

// messageLimit is the longest message read, in bytes: cluster ID 51, time 35, names 40.
const messageLimit = 1024

// pinger asks the peer's gateway and answers it.
type pinger struct {
	own, peer netip.AddrPort
	clusterID string
	policy    plan.PingPolicy
	// changed tells that health may be worth a look.
	changed chan struct{}
	// hurry makes the next ping leave now; late tells that an answer may be overdue, moved that the
	// peer asked us to dial anew.
	hurry, late, moved chan struct{}
	// histogram of the round trips, in microseconds.
	histogram *daemon.Histogram
	// mtu of our side of the tunnel, in bytes, is told with answers; 0 = not known.
	mtu atomic.Int64
	// told is the MTU the peer's last answer told, in bytes; 0 = none.
	told atomic.Int64
	// turn counts the leaders up to this replica's election, 0 = without election. superseded receives a
	// message when the peer reports a later leader.
	turn       *atomic.Int64
	superseded chan struct{}

	mu     sync.Mutex
	conn   *net.UDPConn // nil = not open
	health plan.Health
	// open is when the pings not yet answered were sent, the latest last.
	open []time.Time
	// answers says that one was answered: not every gateway does.
	answers bool
	// latest is the latest turn of the peer's replicas, latestAt when it was heard.
	latest   int64
	latestAt time.Time
}

// openLimit bounds the memory of pings without answer; an answer comes within a few.
const openLimit = 64

// latencyLimits are 100 µs to 0.8 s, each twice the last.
func latencyLimits() (limits []float64) {
	for limit := 100.0; len(limits) < 14; limit *= 2 {
		limits = append(limits, limit)
	}
	return limits
}

func newPinger(o Options, own, peer netip.Addr) *pinger {
	port := uint16(o.PingPort)
	return &pinger{
		own: netip.AddrPortFrom(own, port), peer: netip.AddrPortFrom(peer, port), clusterID: o.RemoteClusterID, policy: o.Ping,
		changed: make(chan struct{}, 1), hurry: make(chan struct{}, 1), late: make(chan struct{}, 1), moved: make(chan struct{}, 1),
		turn: new(atomic.Int64), superseded: make(chan struct{}, 1), health: plan.Health{Started: time.Now()}, histogram: daemon.NewHistogram(latencyLimits()...),
	}
}

// begin forgets everything: another peer is at the other end now, in place of one before when renewed; none when
// keyless.
func (p *pinger) begin(renewed, keyless bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open, p.answers, p.health = nil, false, plan.Health{Started: time.Now(), Renewed: renewed, Keyless: keyless}
	notify(p.changed)
	notify(p.hurry)
}

// Health is what is known now.
func (p *pinger) Health() plan.Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.health
}

// shaken tells of the last handshake, which is as good as an answer where pings are to end with the first.
func (p *pinger) shaken(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.policy.Once && p.conn != nil {
		p.health = p.health.Shaken(at, time.Now())
	}
}

// run pings until the context ends. The tunnel's address may not be there yet, or not any more:
// then the socket is opened again, and pings that cannot be sent are lost ones.
func (p *pinger) run(ctx context.Context) error {
	defer p.close()
	for ctx.Err() == nil {
		p.listen()
		p.ask(time.Now())
		p.rest(ctx)
	}
	return nil
}

// rest waits until the next ping is due, which an answer or its lack changes.
func (p *pinger) rest(ctx context.Context) {
	asked := time.Now()
	for {
		h, now := p.Health(), time.Now()
		left := h.PingAfter(now, p.policy) - now.Sub(asked)
		if left <= 0 {
			return
		}
		// An answer makes the time longer, so look again when it would have been late.
		select {
		case <-ctx.Done():
			return
		case <-p.hurry:
			if p.worthAsking() {
				return
			}
		case <-time.After(left):
		}
	}
}

// worthAsking tells whether a ping before its time may be answered.
func (p *pinger) worthAsking() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.policy.Once || p.answers || p.health.Answered.IsZero()
}

// ask sends one ping.
func (p *pinger) ask(now time.Time) {
	p.mu.Lock()
	p.health = p.health.Asked(now)
	p.open = append(p.open, now)
	if len(p.open) > openLimit {
		p.open = p.open[1:]
	}
	p.mu.Unlock()
	p.say(ping, now)
	notify(p.changed)
	notify(p.late)
}

// say sends a message. One that cannot leave is lost like one that is not answered.
func (p *pinger) say(what string, now time.Time) {
	// Without the monotonic clock, as it comes back.
	text, _ := json.Marshal(message{ClusterID: p.clusterID, Type: what, Time: now.Round(0), Turn: p.turn.Load()})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		_, _ = p.conn.WriteToUDPAddrPort(text, p.peer)
	}
}

// listen opens the socket unless it is open, and reads from it until it is closed.
func (p *pinger) listen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		return
	}
	if conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(p.own)); err == nil {
		p.conn = conn
		go p.read(conn)
	}
}

func (p *pinger) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}

// read reads until the socket is closed.
func (p *pinger) read(conn *net.UDPConn) {
	buffer := make([]byte, messageLimit)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		var m message
		if from.Addr().Unmap() != p.peer.Addr() || json.Unmarshal(buffer[:n], &m) != nil {
			continue
		}
		switch m.Type {
		case ping:
			m.Type, m.MTU, m.Turn = pong, int(p.mtu.Load()), p.latestTurn(m.Turn, time.Now())
			text, _ := json.Marshal(m)
			_, _ = conn.WriteToUDPAddrPort(text, from)
		case pong:
			p.told.Store(int64(m.MTU))
			if own := p.turn.Load(); p.answered(m.Time, time.Now()) && own > 0 && m.Turn > own {
				notify(p.superseded)
			}
		case move:
			notify(p.moved)
		}
	}
}

// latestTurn takes the turn of a ping into account and returns the latest one that was heard lately.
func (p *pinger) latestTurn(turn int64, now time.Time) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case turn <= 0:
		return 0
	case turn >= p.latest || now.Sub(p.latestAt) >= turnFor:
		p.latest, p.latestAt = turn, now
	}
	return p.latest
}

// answered takes an answer to a ping sent at a time, and reports whether it is one; one we never sent says nothing,
// and wakes nobody.
func (p *pinger) answered(sent, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.open {
		if t.Equal(sent) {
			p.open, p.answers = nil, true
			p.health = p.health.Answer(now, now.Sub(t))
			p.histogram.Observe(float64(now.Sub(t).Microseconds()))
			notify(p.changed)
			return true
		}
	}
	return false
}

// notify sends a message unless one lies there unread.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
