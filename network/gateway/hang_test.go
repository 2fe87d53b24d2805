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
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/gateway/plan"
)

// TestTimedFailoverWithoutAPIServerAndDNS: while the client's API server and DNS take requests and answer none, a
// server that is replaced is followed as fast as ever, and pings keep their interval.
func TestTimedFailoverWithoutAPIServerAndDNS(t *testing.T) {
	_, a, b := worlds(t)
	a.startFabric(t)
	b.startFabric(t)
	b.trust(t, a)
	a.trust(t, b)
	var hangs atomic.Bool
	b.role.Socket += "-hangs"
	hangingAPI(t, &hangs, b.role.Socket, b.role.Config.Host)
	b.role.DNS = hangingDNS(t, &hangs, b.Gateway, a.NodeIP)
	const interval = 500 * time.Millisecond
	server := a.startGateway(t, b, true)
	b.startGatewayPod(t, b.Gateway, "gw", a, false, func(o *plan.Options) {
		o.EndpointAddresses, o.DNSCheckInterval = []string{"gateway.example.org"}, time.Second
		o.Ping.Interval = interval
	})
	b.waitFor(t, "Connected")
	b.Pod.Serve("10.10.1.2:80")
	const to = "10.71.1.2:80"
	space.Eventually(t, "pod to pod", func() error { _, err := a.Pod.Asks("udp", "", to, 10); return err })

	hangs.Store(true)
	time.Sleep(3 * time.Second) // requests and lookups of the client hang by now
	a.replacesServer(t, b, server, to)
	before, began := keepsTunnel(t, b.Gateway), time.Now()
	time.Sleep(10 * interval)
	if pings, want := keepsTunnel(t, b.Gateway)-before, int(time.Since(began)/interval)-2; pings < want {
		t.Errorf("%d pings were answered in %v, want %d", pings, time.Since(began), want)
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
	hangs := filepath.Join(dir, "hangs")
	script := fmt.Sprintf("#!/bin/sh\nwhile [ -e %s ]; do sleep 0.1; done\nexec %s \"$@\"\n", hangs, nft)
	if err := os.WriteFile(filepath.Join(dir, "nft"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+path)
	b.startGateway(t, a, false)
	t.Setenv("PATH", path)
	b.waitFor(t, "Connected")
	b.Pod.Serve("10.10.1.2:80")
	const to = "10.71.1.2:80"
	space.Eventually(t, "pod to pod", func() error { _, err := a.Pod.Asks("udp", "", to, 10); return err })

	if err := os.WriteFile(hangs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.announces(t, []string{"10.10.0.0/16", "10.41.0.0/16"}, []string{"10.10.0.0/16"}) // rules have to be written
	time.Sleep(time.Second)
	a.replacesServer(t, b, server, to)
	if err := os.Remove(hangs); err != nil {
		t.Fatal(err)
	}
	rules(t, b.Gateway, "10.41.0.0/16")
}

// replacesServer expects a server to be replaced without a longer gap than a planned move has.
func (w *world) replacesServer(t *testing.T, peer *world, server process, to string) {
	t.Helper()
	second := space.New(t, "A gateway 2")
	w.Plug(second, "10.10.1.7")
	if gap := w.passes(t, to, "the server is told to end", func() {
		server.tell()
		w.startGatewayPod(t, second, "gw2", peer, true)
		ready(t, second)
		w.name(t, "10.10.1.7")
		w.reachesBy(t, "10.10.1.7", to)
		w.publish("10.10.1.7")
	}); gap > planned {
		t.Errorf("the longest gap is %v, more than %v", gap, planned)
	}
}

// hangingAPI forwards connections of a socket to an API server, and nothing of what they carry while hangs is set.
func hangingAPI(t *testing.T, hangs *atomic.Bool, socket, host string) {
	t.Helper()
	u, err := url.Parse(host)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	forward := func(from, to net.Conn) {
		defer to.Close()
		for b := make([]byte, 1<<16); ; {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			if !hangs.Load() {
				to.Write(b[:n])
			}
		}
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", u.Host)
			if err != nil {
				in.Close()
				continue
			}
			go forward(in, out)
			go forward(out, in)
		}
	}()
}

// hangingDNS answers questions for the IPv4 address of any name in a namespace, and none while hangs is set.
func hangingDNS(t *testing.T, hangs *atomic.Bool, at *space.Space, address netip.Addr) string {
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
			if err != nil || hangs.Load() || end < 0 {
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
