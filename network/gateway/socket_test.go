// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"encoding/json"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/network/gateway/plan"
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
		answers, moved := make(chan plan.Answer, 8), make(chan struct{}, 8)
		p := &socket{
			own: netip.MustParseAddrPort("127.0.0.1:0"), peer: addrPort(peer), open: []time.Time{asked},
			answered: func(a plan.Answer) { answers <- a }, moved: func() { moved <- struct{}{} },
		}
		p.setMTU(1340)
		p.listen()
		defer p.close()
		us := addrPort(p.conn)

		var sent, m message
		heard := json.Unmarshal(data[:min(len(data), messageLimit)], &sent) == nil
		last := message{ClusterID: "last", Type: plan.Ping, Time: asked}
		send(t, stranger, us, data)
		say(t, stranger, us, message{Type: plan.Move})
		say(t, peer, us, last)
		if m = hear(t, peer); m.ClusterID != "last" || m.Type != plan.Pong || len(moved)+len(answers) > 0 {
			t.Fatalf("a stranger has us say %+v, moved %d, answered %d", m, len(moved), len(answers))
		}
		if send(t, peer, addrPort(stranger), nil); received(t, stranger) != "" {
			t.Fatal("a stranger gets an answer")
		}

		send(t, peer, us, data)
		say(t, peer, us, last)
		if m = hear(t, peer); heard && sent.Type == plan.Ping {
			if m.Type != plan.Pong || m.ClusterID != sent.ClusterID || !m.Time.Equal(sent.Time) || m.MTU != 1340 {
				t.Fatalf("%+v is the answer to %+v", m, sent)
			}
			m = hear(t, peer)
		}
		if m.Type != plan.Pong || !m.Time.Equal(last.Time) || m.ClusterID != last.ClusterID {
			t.Fatalf("%+v is the answer to %q", m, data)
		}
		if moves := len(moved) > 0; moves != (heard && sent.Type == plan.Move) {
			t.Fatalf("asked to dial again: %v, by %q", moves, data)
		}
		if len(answers) > 0 {
			t.Fatalf("%q is taken for the answer %+v", data, <-answers)
		}

		sender := listening(t, "127.0.0.1")
		probing, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(addrPort(sender)))
		if err != nil {
			t.Fatal(err)
		}
		defer probing.Close()
		probe := prober{conn: probing, patience: patience.Limit}
		send(t, sender, addrPort(probing), data)
		answer := message{Type: plan.Pong, Time: asked, MTU: 1400}
		say(t, sender, addrPort(probing), answer)
		if !probe.answered(asked) || probe.mtu != 1400 {
			t.Fatalf("%q is an answer, and tells the MTU %d", data, probe.mtu)
		}
		say(t, peer, us, answer)
		say(t, peer, us, last)
		hear(t, peer) // so the answer before was read
		if len(answers) == 0 {
			t.Fatalf("after %q an answer is ignored", data)
		}
		if a := <-answers; !a.Sent.Equal(asked) || a.MTU != 1400 {
			t.Fatalf("after %q an answer is %+v", data, a)
		}
	})
}

// TestLaterTurns: a gateway tells in its answers of the latest turn it heard lately.
func TestLaterTurns(t *testing.T) {
	t.Parallel()
	start := time.Now()
	p := &socket{}
	for _, c := range []struct {
		turn, want int64
		after      time.Duration
	}{{0, 0, 0}, {5, 5, 0}, {6, 6, time.Second}, {5, 6, 2 * time.Second}, {0, 0, 3 * time.Second}, {-7, 0, 3 * time.Second}, {5, 6, 4 * time.Second}, {5, 5, 11 * time.Second}, {6, 6, 12 * time.Second}} {
		if got := p.answer(message{Turn: c.turn}, start.Add(c.after)).Turn; got != c.want {
			t.Errorf("%v after the start: %d is answered with %d, want %d", c.after, c.turn, got, c.want)
		}
	}
}

// TestUnaskedAnswersWakeNobody: answers to pings that were sent are passed on, not any that a peer makes up, nor one
// that comes twice or after a later one.
func TestUnaskedAnswersWakeNobody(t *testing.T) {
	t.Parallel()
	peer := listening(t, "127.0.0.1")
	p := &socket{own: netip.MustParseAddrPort("127.0.0.1:0"), peer: addrPort(peer)}
	defer p.close()
	start := time.Now()
	for n := range 3 {
		p.send(message{Type: plan.Ping, Time: start.Add(time.Duration(n)), Turn: 5})
		if m := hear(t, peer); m.Turn != 5 {
			t.Errorf("a ping of turn %d", m.Turn)
		}
	}
	for _, c := range []struct {
		claim  string
		sent   time.Time
		passed bool
	}{
		{"made up", start.Add(time.Second), false}, {"to the second", start.Add(1).Round(0), true}, {"the same again", start.Add(1), false},
		{"to the first", start, false}, {"to the third", start.Add(2), true},
	} {
		if got := p.match(c.sent); got.IsZero() == c.passed {
			t.Errorf("an answer %s: passed on %t, want %t", c.claim, !got.IsZero(), c.passed)
		}
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
	c.SetReadDeadline(time.Now().Add(patience.Limit))
	buffer := make([]byte, 1<<16)
	n, err := c.Read(buffer)
	if err != nil {
		t.Fatal(patience.GaveUp("a packet", err))
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
