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

	"github.com/liqo-go/liqo/network/daemon"
	"github.com/liqo-go/liqo/network/plan"
)

// message of the health check between two gateways, UDP inside the tunnel. Peers may run another
// implementation: a PING is sent back as it came, with the type changed.
type message struct {
	ClusterID string    `json:"clusterID"`
	Type      string    `json:"msgType"`
	Time      time.Time `json:"timeStamp"`
}

const (
	ping = "PING"
	pong = "PONG"
)

// messageLimit is the longest message read, in bytes: cluster ID 51, time 35, names 40.
const messageLimit = 1024

// pinger asks the peer's gateway and answers it.
type pinger struct {
	own, peer netip.AddrPort
	clusterID string
	policy    plan.PingPolicy
	// changed tells that health may be worth a look.
	changed chan struct{}
	// histogram of the round trips, in microseconds.
	histogram *daemon.Histogram

	mu     sync.Mutex
	health plan.Health
	// open is when the pings not yet answered were sent, the latest last.
	open []time.Time
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
		changed: make(chan struct{}, 1), health: plan.Health{Started: time.Now()}, histogram: daemon.NewHistogram(latencyLimits()...),
	}
}

// begin forgets everything: another peer is at the other end now.
func (p *pinger) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open, p.health = nil, plan.Health{Started: time.Now()}
	p.notify()
}

// Health is what is known now.
func (p *pinger) Health() plan.Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.health
}

// run pings until the context ends. The tunnel's address may not be there yet, or not any more:
// then the socket is opened again, and pings that cannot be sent are lost ones.
func (p *pinger) run(ctx context.Context) error {
	var conn *net.UDPConn
	defer func() {
		if conn != nil {
			conn.Close()
		}
	}()
	for {
		if conn == nil {
			if c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(p.own)); err == nil {
				conn = c
				go p.listen(conn)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(p.send(conn, time.Now())):
		}
	}
}

// send sends one ping and returns the time until the next.
func (p *pinger) send(conn *net.UDPConn, now time.Time) time.Duration {
	// Without the monotonic clock, as it comes back.
	text, _ := json.Marshal(message{ClusterID: p.clusterID, Type: ping, Time: now.Round(0)})
	p.mu.Lock()
	p.health.Sent++
	p.health.Lost = len(p.open)
	p.open = append(p.open, now)
	if len(p.open) > openLimit {
		p.open = p.open[1:]
	}
	after := p.health.PingAfter(p.policy.Interval)
	p.mu.Unlock()
	if conn != nil {
		// A ping that cannot leave is lost like one that is not answered.
		_, _ = conn.WriteToUDPAddrPort(text, p.peer)
	}
	p.notify()
	return after
}

// listen reads until the socket is closed.
func (p *pinger) listen(conn *net.UDPConn) {
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
			m.Type = pong
			text, _ := json.Marshal(m)
			_, _ = conn.WriteToUDPAddrPort(text, from)
		case pong:
			p.answered(m.Time, time.Now())
		}
	}
}

// answered takes an answer to a ping sent at a time; one we never sent says nothing.
func (p *pinger) answered(sent, now time.Time) {
	p.mu.Lock()
	for _, t := range p.open {
		if t.Equal(sent) {
			p.open = nil
			p.health = p.health.Answer(now, now.Sub(t))
			p.histogram.Observe(float64(now.Sub(t).Microseconds()))
			break
		}
	}
	p.mu.Unlock()
	p.notify()
}

func (p *pinger) notify() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}
