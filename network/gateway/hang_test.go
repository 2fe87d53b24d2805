// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/gateway/plan"
)

// TestFailoverWithoutAPIServerAndDNS: while the client's API server and DNS take requests and answer none, a server
// that is replaced is followed.
func TestFailoverWithoutAPIServerAndDNS(t *testing.T) {
	t.Parallel()
	failoverWithoutAPIServerAndDNS(t, atAll)
}

// TestTimedFailoverWithoutAPIServerAndDNS: it is followed as fast as ever, and pings keep their interval.
func TestTimedFailoverWithoutAPIServerAndDNS(t *testing.T) {
	client, heal := failoverWithoutAPIServerAndDNS(t, inTime)
	const pings = 8
	answered := func() time.Duration {
		began := time.Now()
		keepsTunnel(t, client.Gateway, pings)
		return time.Since(began)
	}
	took := answered()
	heal()
	if usual := max(answered(), pings*hangInterval); took > usual+2*hangInterval {
		t.Errorf("%d pings were answered in %v, which take %v otherwise", pings, took, usual)
	}
}

// hangInterval is the interval of pings of a client whose API server and DNS hang.
const hangInterval = 500 * time.Millisecond

// failoverWithoutAPIServerAndDNS returns the client, and what ends the outage of its API server and DNS.
func failoverWithoutAPIServerAndDNS(t *testing.T, expected expected) (client *world, heal func()) {
	t.Helper()
	_, a, b := worlds(t)
	a.startFabric(t)
	b.startFabric(t)
	b.trust(t, a)
	a.trust(t, b)
	var requests, lookups outage
	b.role.Socket += "-hangs"
	bridge(t, b.role.Socket, b.role.Config.Host, &requests)
	b.role.DNS = hangingDNS(t, &lookups, b.Gateway, a.NodeIP)
	server := a.startGateway(t, b, true)
	b.startGatewayPod(t, b.Gateway, "gw", a, false, func(o *plan.Options) {
		o.EndpointAddresses, o.DNSCheckInterval = []string{"gateway.example.org"}, time.Second
		o.Ping.Interval = hangInterval
	})
	to := b.answers(t, a)

	requests.on.Store(true)
	lookups.on.Store(true)
	space.Eventually(t, "a request and a lookup that hang", func() error {
		if requests.lost.Load() == 0 || lookups.lost.Load() == 0 {
			return fmt.Errorf("%d requests and %d lookups do", requests.lost.Load(), lookups.lost.Load())
		}
		return nil
	})
	a.replacesServer(t, b, server, to, expected)
	return b, func() {
		requests.on.Store(false)
		lookups.on.Store(false)
	}
}

// TestTimedFailoverWhileNFTHangs: a client follows a server that is replaced while its own rules are being written.
func TestTimedFailoverWhileNFTHangs(t *testing.T) {
	_, a, b := worlds(t)
	a.startFabric(t)
	b.startFabric(t)
	b.trust(t, a)
	a.trust(t, b)
	server := a.startGateway(t, b, true)
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Fatal(err)
	}
	dir, path := t.TempDir(), os.Getenv("PATH")
	hangs, waits := filepath.Join(dir, "hangs"), filepath.Join(dir, "waits")
	script := fmt.Sprintf("#!/bin/sh\nwhile [ -e %s ]; do touch %s; sleep 0.1; done\nexec %s \"$@\"\n", hangs, waits, nft)
	if err := os.WriteFile(filepath.Join(dir, "nft"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+path)
	b.startGateway(t, a, false)
	t.Setenv("PATH", path)
	to := b.answers(t, a)

	if err := os.WriteFile(hangs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.announces(t, []string{"10.10.0.0/16", "10.41.0.0/16"}, []string{"10.10.0.0/16"}) // rules have to be written
	space.Eventually(t, "an nft that hangs", func() error { _, err := os.Stat(waits); return err })
	a.replacesServer(t, b, server, to, inTime)
	if err := os.Remove(hangs); err != nil {
		t.Fatal(err)
	}
	rules(t, b.Gateway, "10.41.0.0/16")
}

// answers serves in the pod of a client that is connected, and returns the address at which the server's pod reaches it.
func (w *world) answers(t *testing.T, server *world) (to string) {
	t.Helper()
	w.waitFor(t, "Connected")
	w.Pod.Serve("10.10.1.2:80")
	to = "10.71.1.2:80"
	server.reaches(t, to, "at first")
	return to
}

// replacesServer expects a server to be replaced without a longer gap than a planned move has.
func (w *world) replacesServer(t *testing.T, peer *world, server process, to string, expected expected) {
	t.Helper()
	second := space.New(t, "A gateway 2")
	w.Plug(second, "10.10.1.7")
	w.startGatewayPod(t, second, "gw2", peer, true)
	ready(t, second) // first: the server that is told to end waits for it for so long only
	expected.traffic(w, t, to, "the server is told to end", planned, func() {
		server.tell()
		w.name(t, "10.10.1.7")
		expected.moved(w, t, "10.10.1.7", to)
		w.publish("10.10.1.7")
	})
}

// outage is a time in which messages get lost.
type outage struct {
	on   atomic.Bool
	lost atomic.Int64
}

// takes counts a message and reports whether it gets lost.
func (o *outage) takes() bool {
	if o == nil || !o.on.Load() {
		return false
	}
	o.lost.Add(1)
	return true
}

// hangingDNS answers questions for the IPv4 address of any name in a namespace, but for those that an outage takes.
func hangingDNS(t *testing.T, out *outage, at *space.Space, address netip.Addr) string {
	t.Helper()
	var conn net.PacketConn
	var err error
	at.Do(func() { conn, err = net.ListenPacket("udp", "127.0.0.1:53") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		for b := make([]byte, 1500); ; {
			n, from, err := conn.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			const header = 12
			end := bytes.IndexByte(b[header:n], 0) // of the name, which labels follow each other in
			if err != nil || end < 0 || out.takes() {
				continue
			}
			question := b[header : header+end+5] // name, type, class
			answer := append([]byte{b[0], b[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
			if question[end+2] == 1 { // type A, the only one with an answer
				answer[7] = 1
				answer = append(answer, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4)
				answer = append(answer, address.AsSlice()...)
			}
			conn.WriteTo(answer, from)
		}
	}()
	return conn.LocalAddr().String()
}
