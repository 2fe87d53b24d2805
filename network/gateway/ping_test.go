// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"encoding/json"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
)

// FuzzPings: whatever the peer's gateway sends, it is answered as a ping if it is one, asks us to dial anew if it says
// so, and is no answer, for it does not know when we asked. Who else sends something is not heard at all.
func FuzzPings(f *testing.F) {
	f.Add([]byte(`{"clusterID": "rome", "msgType": "PING", "timeStamp": "2025-01-02T03:04:05.000000006+07:00", "mtu": 9000}`))
	f.Add([]byte(`{"msgType": "PONG", "timeStamp": "0001-01-01T00:00:00Z", "mtu": -1}`))
	f.Add([]byte(`{"msgType": "MOVE"}  `))
	f.Add([]byte(`{"msgType": "PING", "clusterID": "\ud800<&", "timeStamp": "9999-12-31T23:59:59-23:59"}`))
	f.Add([]byte(`{"msgType": "PING", "msgtype": "PONG", "timeStamp": null}`))
	f.Add([]byte(`{"msgType": "HELLO", "timeStamp": "2025-01-02T03:04:05Z", "mtu": 1000}`))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<15 {
			return // no packet
		}
		peer, stranger := listening(t, "127.0.0.1"), listening(t, "127.0.0.2")
		asked := time.Now().Round(0)
		p := &pinger{
			own: netip.MustParseAddrPort("127.0.0.1:0"), peer: addrPort(peer),
			turn: new(atomic.Int64), changed: make(chan struct{}, 1), hurry: make(chan struct{}, 1), late: make(chan struct{}, 1), moved: make(chan struct{}, 1),
			open: []time.Time{asked}, histogram: newPinger(Options{}, netip.Addr{}, netip.Addr{}).histogram,
		}
		p.health = p.health.Asked(asked)
		p.mtu.Store(1340)
		before := p.Health()
		p.listen()
		defer p.close()
		us := addrPort(p.conn)

		var sent, m message
		heard := json.Unmarshal(data[:min(len(data), messageLimit)], &sent) == nil
		last := message{ClusterID: "last", Type: ping, Time: asked}
		send(t, stranger, us, data)
		say(t, stranger, us, message{Type: move})
		say(t, peer, us, last)
		if m = hear(t, peer); m.ClusterID != "last" || m.Type != pong || len(p.moved) > 0 || p.told.Load() != 0 {
			t.Fatalf("a stranger has us say %+v, moved %d, MTU %d", m, len(p.moved), p.told.Load())
		}
		if send(t, peer, addrPort(stranger), nil); received(t, stranger) != "" {
			t.Fatal("a stranger gets an answer")
		}

		send(t, peer, us, data)
		say(t, peer, us, last)
		if m = hear(t, peer); heard && sent.Type == ping {
			if m.Type != pong || m.ClusterID != sent.ClusterID || !m.Time.Equal(sent.Time) || m.MTU != 1340 {
				t.Fatalf("%+v is the answer to %+v", m, sent)
			}
			m = hear(t, peer)
		}
		if m.Type != pong || !m.Time.Equal(last.Time) || m.ClusterID != last.ClusterID {
			t.Fatalf("%+v is the answer to %q", m, data)
		}
		if told := p.told.Load(); told != 0 && !(heard && sent.Type == pong && told == int64(sent.MTU)) {
			t.Fatalf("%q tells the MTU %d", data, told)
		}
		if moved := len(p.moved) > 0; moved != (heard && sent.Type == move) {
			t.Fatalf("asked to dial anew: %v, by %q", moved, data)
		}
		if now := p.Health(); now != before || p.answers || len(p.hurry)+len(p.late) > 0 {
			t.Fatalf("%q makes %+v of %+v", data, now, before)
		}

		sender := listening(t, "127.0.0.1")
		probing, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(addrPort(sender)))
		if err != nil {
			t.Fatal(err)
		}
		defer probing.Close()
		probe := prober{conn: probing, patience: time.Minute}
		send(t, sender, addrPort(probing), data)
		answer := message{Type: pong, Time: asked, MTU: 1400}
		say(t, sender, addrPort(probing), answer)
		if !probe.answered(asked) || probe.mtu != 1400 {
			t.Fatalf("%q is an answer, and tells the MTU %d", data, probe.mtu)
		}
		say(t, peer, us, answer)
		say(t, peer, us, last)
		if hear(t, peer); p.Health().Answered.IsZero() || p.told.Load() != 1400 {
			t.Fatalf("after %q answers are not heard", data)
		}
	})
}

// TestLaterTurns: a gateway tells in its answers of the latest turn it heard lately, and a replica heeds a later one in an
// answer to its own ping.
func TestLaterTurns(t *testing.T) {
	t.Parallel()
	start := time.Now()
	p := &pinger{}
	for _, c := range []struct {
		turn, want int64
		after      time.Duration
	}{{0, 0, 0}, {5, 5, 0}, {6, 6, time.Second}, {5, 6, 2 * time.Second}, {0, 0, 3 * time.Second}, {-7, 0, 3 * time.Second}, {5, 6, 4 * time.Second}, {5, 5, 11 * time.Second}, {6, 6, 12 * time.Second}} {
		if got := p.latestTurn(c.turn, start.Add(c.after)); got != c.want {
			t.Errorf("%v after the start: %d is answered with %d, want %d", c.after, c.turn, got, c.want)
		}
	}

	peer := listening(t, "127.0.0.1")
	p = newPinger(Options{}, netip.MustParseAddr("127.0.0.1"), netip.Addr{})
	p.peer = addrPort(peer)
	p.turn.Store(5)
	p.listen()
	defer p.close()
	us := addrPort(p.conn)
	answer := func(later int64, unasked time.Duration) (heeded bool) {
		p.ask(time.Now())
		m := hear(t, peer)
		if m.Turn != 5 {
			t.Errorf("a ping of turn %d", m.Turn)
		}
		say(t, peer, us, message{Type: pong, Time: m.Time.Add(unasked), Turn: later})
		say(t, peer, us, message{Type: ping}) // it is answered after that
		hear(t, peer)
		select {
		case <-p.superseded:
			return true
		default:
			return false
		}
	}
	if answer(0, 0) || answer(5, 0) || answer(6, time.Hour) || !answer(6, 0) {
		t.Error("a replica does not heed a later turn, or something else")
	}
	p.turn.Store(0)
	p.ask(time.Now())
	say(t, peer, us, message{Type: pong, Time: hear(t, peer).Time, Turn: 6})
	say(t, peer, us, message{Type: ping})
	if hear(t, peer); len(p.superseded) > 0 {
		t.Error("a gateway without replicas heeds a turn")
	}
}

func listening(t *testing.T, at string) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(at)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func addrPort(c *net.UDPConn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }

func send(t *testing.T, c *net.UDPConn, to netip.AddrPort, data []byte) {
	t.Helper()
	if _, err := c.WriteToUDPAddrPort(data, to); err != nil {
		t.Fatal(err)
	}
}

func say(t *testing.T, c *net.UDPConn, to netip.AddrPort, m message) {
	t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	send(t, c, to, text)
}

// received is the next packet that comes.
func received(t *testing.T, c *net.UDPConn) string {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	buffer := make([]byte, 1<<16)
	n, err := c.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return string(buffer[:n])
}

// hear is the next message that comes.
func hear(t *testing.T, c *net.UDPConn) message {
	t.Helper()
	var m message
	if text := received(t, c); json.Unmarshal([]byte(text), &m) != nil {
		t.Fatalf("no message: %q", text)
	}
	return m
}
