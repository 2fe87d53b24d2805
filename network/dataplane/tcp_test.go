// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/plan"
)

// overTCP creates two clusters like peered, with the tunnel over TCP and a network between them
// that drops UDP.
func overTCP(t testing.TB) (internet *space.Space, a, b *cluster) {
	t.Helper()
	internet = space.NewInternet(t)
	internet.NFT(`table ip provider { chain between { type filter hook forward priority 0; meta l4proto udp drop; }; }`)
	a, b = newCluster(t, internet, "A", 1, "10.10.1.5"), newCluster(t, internet, "B", 2, "10.10.1.6")
	b.dial(0, a, [2]string{"10.72.0.0/16", "10.74.0.0/16"}, [2]string{"10.71.0.0/16", "10.73.0.0/16"})
	for _, c := range []*cluster{a, b} {
		c.gateways[0].in.Tunnel.TCP = true
		c.settle(t)
		c.Pod.Serve("10.10.1.2:80")
	}
	waitFor(t, b.Gateway)
	return internet, a, b
}

// TestTimedTunnelOverTCP: where UDP is blocked, pods communicate in both directions through one TCP
// connection. Connections between pods survive an interrupted path and a restart of either gateway.
func TestTimedTunnelOverTCP(t *testing.T) {
	internet, a, b := overTCP(t)
	bothWays(t, a, b)
	space.Eventually(t, "one connection of the client", func() error {
		if n := b.connections(); n != 1 {
			return fmt.Errorf("it has %d", n)
		}
		return nil
	})
	for _, c := range []*cluster{a, b} {
		var changes plan.Changes
		written := c.Gateway.Written(func() { changes = c.gateways[0].settle(t) })
		if have := c.gateways[0].observe(t); !changes.Empty() || written != "" || !have.Tunnels[0].TCP {
			t.Errorf("%s: a second pass changes\n%s\nthe kernel reports\n%s\nof\n%s", c.Gateway.Name, changes, written, have)
		}
	}
	echo := a.echo(t, b)
	steps := []struct {
		what string
		do   func()
	}{
		{"the connection is reset", func() {
			internet.NFT(`table ip cut { chain between { type filter hook forward priority 0; tcp dport 51840 reject with tcp reset; }; }`)
			b.disconnected(t)
			internet.NFT("delete table ip cut")
		}},
		{"the server is started again", func() { a.gateways[0].restart(t) }},
		{"the client is started again", func() { b.gateways[0].restart(t) }},
		{"the client dials anew", func() {
			g := b.gateways[0]
			if err := g.plane.DialAnew("liqo-tunnel", g.in.Tunnel.PeerKey, netip.AddrPort{}, 0); err != nil {
				t.Error(err)
			}
			if changes := g.settle(t); !changes.Empty() {
				t.Errorf("after it a pass changes\n%s", changes)
			}
		}},
		{"the path is cut and healed", func() {
			internet.NFT(`table ip cut { chain between { type filter hook forward priority 0; drop; }; }`)
			// 150 looks take 10 s, and more on a busy machine.
			if looks := a.disconnected(t) + b.disconnected(t); looks > 150 {
				t.Errorf("a dead path is noticed after %d looks", looks)
			}
			internet.NFT("delete table ip cut")
		}},
	}
	for _, s := range steps {
		s.do()
		// The wait for the next attempt to connect is at most 5 s; WireGuard alone takes 15 s.
		if tries := waitFor(t, b.Gateway); tries > 8 {
			t.Errorf("%s: pods wait for %d tries of a second", s.what, tries)
		}
		bothWays(t, a, b)
		echo(s.what)
	}
}

// bothWays sends requests from pods of each cluster to pods of the other.
func bothWays(t *testing.T, a, b *cluster) {
	t.Helper()
	for _, network := range []string{"tcp", "udp"} {
		for _, way := range []struct {
			from       *cluster
			to, seenAs string
		}{{a, "10.71.1.2:80", "10.72.1.2"}, {b, "10.72.1.2:80", "10.71.1.2"}} {
			space.Eventually(t, "an answer to "+way.from.Pod.Name+" over "+network, func() error {
				seen, err := way.from.Pod.Asks(network, "", way.to, 1200)
				if err == nil && seen != way.seenAs {
					err = fmt.Errorf("the server saw %q", seen)
				}
				return err
			})
		}
	}
}

// disconnected waits until the gateway has no connection, with traffic on the tunnel. It returns the number of looks.
func (c *cluster) disconnected(t *testing.T) (looks int) {
	t.Helper()
	space.Eventually(t, "the end of all connections of "+c.Gateway.Name, func() error {
		looks++
		if n := c.connections(); n > 0 {
			c.Gateway.Sends("", netip.AddrPortFrom(c.gateways[0].in.Tunnel.PeerAddress, 9).String(), []byte("hello"))
			return fmt.Errorf("there are %d connections", n)
		}
		return nil
	})
	return looks
}

// connections counts the gateway's TCP connections of the tunnel.
func (c *cluster) connections() int {
	return strings.Count(c.Gateway.Run("", "ss", "-Htn", "state", "established", "( sport = :51840 or dport = :51840 )"), "\n")
}

// restart ends the process and starts it again with the same key.
func (e *end[In]) restart(t *testing.T) {
	t.Helper()
	e.plane.Close()
	var err error
	e.Do(func() { e.plane, err = dataplane.Open(dataplane.Options{PrivateKey: e.key, Dial: e.Dial}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.plane.Close)
	e.settle(t)
}

// echo opens a connection to a pod of another cluster and returns a function that uses it.
func (c *cluster) echo(t *testing.T, to *cluster) func(when string) {
	t.Helper()
	var l net.Listener
	var conn net.Conn
	var err error
	to.Pod.Do(func() { l, err = net.Listen("tcp", "10.10.1.2:7") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		if in, err := l.Accept(); err == nil {
			io.Copy(in, in)
		}
	}()
	c.Pod.Do(func() { conn, err = net.Dial("tcp", "10.71.1.2:7") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return func(when string) {
		t.Helper()
		conn.SetDeadline(time.Now().Add(patience.Limit))
		if _, err := conn.Write([]byte("hello")); err != nil {
			t.Fatalf("%s: the connection between pods: %v", when, err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
			t.Fatalf("%s: the connection between pods: %v", when, err)
		}
	}
}

// TestStrangersOverTCP: anybody may connect to the server, but not more. The peer's connection
// stays its endpoint, and the peer can connect again among many others.
func TestStrangersOverTCP(t *testing.T) {
	internet, a, b := overTCP(t)
	peer := b.gateways[0].key.PublicKey().String()
	before, err := a.gateways[0].plane.Traffic("liqo-tunnel", peer)
	if err != nil || !before.Endpoint.IsValid() {
		t.Fatalf("the peer is at %v, error %v", before.Endpoint, err)
	}
	var silent net.Conn
	for range 100 {
		silent = a.visit(t, internet, "")
	}
	foreign := a.visit(t, internet, "GET / HTTP/1.1\r\nHost: gateway\r\n\r\n")
	ended(t, foreign, "the end of a stranger of another language")
	packet := "\x00\x94\x01\x00\x00\x00" + strings.Repeat("x", 144) // looks like the first of a handshake
	data := "\x04\x00\x04\x00\x00\x00" + strings.Repeat("x", 1020)
	a.visit(t, internet, packet+data+data)
	after, err := a.gateways[0].plane.Traffic("liqo-tunnel", peer)
	if err != nil || after.Endpoint != before.Endpoint {
		t.Errorf("the peer moved from %v to %v, error %v", before.Endpoint, after.Endpoint, err)
	}
	b.Gateway.PingsUntilAnswered(t, "169.254.18.1")
	space.Eventually(t, "no more connections than the server takes", func() error {
		if n := a.connections(); n > 33 { // one may be on its way out
			return fmt.Errorf("it has %d", n)
		}
		return nil
	})
	b.gateways[0].restart(t)
	waitFor(t, b.Gateway)
	ended(t, silent, "the end of a stranger that says nothing")
	bothWays(t, a, b)
}

// visit connects to a cluster's gateway.
func (c *cluster) visit(t *testing.T, from *space.Space, says string) (conn net.Conn) {
	t.Helper()
	var err error
	from.Do(func() { conn, err = net.Dial("tcp", c.NodeIP.String()+":51840") })
	if err == nil {
		_, err = conn.Write([]byte(says))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// ended waits until the other side closes a connection.
func ended(t *testing.T, conn net.Conn, what string) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(patience.Limit))
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(patience.GaveUp(what, err))
	} else if err == nil {
		t.Errorf("instead of %s there is an answer", what)
	}
}

// TestTCPTunnelStopsCompletely: nothing of a tunnel over TCP runs on after it: neither when it is closed
// while it is connected, nor while it dials, nor when it becomes one over UDP.
func TestTCPTunnelStopsCompletely(t *testing.T) {
	_, a, b := overTCP(t)
	running := func() string {
		var stacks bytes.Buffer
		pprof.Lookup("goroutine").WriteTo(&stacks, 2)
		var out strings.Builder
		for _, stack := range strings.Split(stacks.String(), "\n\n") {
			if strings.Contains(stack, "network/dataplane.(") && !strings.Contains(stack, "testing.tRunner") {
				fmt.Fprintln(&out, stack)
			}
		}
		return out.String()
	}
	if running() == "" {
		t.Fatal("nothing of the tunnels is found running")
	}
	ends := func(when string) {
		t.Helper()
		if left := running(); strings.Contains(left, "(*tcpBind).connect") {
			t.Errorf("%s this connects:\n%s", when, left)
		}
		// What has said that it is done may still be on its way out.
		space.Eventually(t, "the end of all goroutines "+when, func() error {
			if left := running(); left != "" {
				return errors.New(left)
			}
			return nil
		})
	}
	b.gateways[0].in.Tunnel.TCP, a.gateways[0].in.Tunnel.TCP = false, false
	b.gateways[0].settle(t)
	a.gateways[0].settle(t)
	ends("over UDP")
	if have := a.gateways[0].observe(t); len(have.Tunnels) != 1 || have.Tunnels[0].TCP {
		t.Errorf("the tunnel is\n%s", have)
	}
	a.gateways[0].settle(t) // what the removal of the first device took along
	if again := a.gateways[0].settle(t); !again.Empty() {
		t.Errorf("a third pass changes\n%s", again)
	}
	b.gateways[0].in.Tunnel.TCP = true // which dials in vain
	b.gateways[0].settle(t)
	b.gateways[0].settle(t)
	b.gateways[0].plane.Close()
	ends("closed while it dials")
}

// BenchmarkTunnelTCP is BenchmarkTunnel with the tunnel over TCP.
func BenchmarkTunnelTCP(b *testing.B) {
	_, x, y := overTCP(b)
	x.Gateway.NFT("delete table inet liqo")
	y.Gateway.NFT("delete table inet liqo")
	x.Gateway.Transfer(b, y.Gateway, "169.254.18.2:5001")
}

// BenchmarkPodsTCP is BenchmarkPods with the tunnel over TCP.
func BenchmarkPodsTCP(b *testing.B) {
	_, x, y := overTCP(b)
	x.Pod.Transfer(b, y.Pod, "10.71.1.2:5001")
}
