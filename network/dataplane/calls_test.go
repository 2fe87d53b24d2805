// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.zx2c4.com/wireguard/conn"
	wireguard "golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/plan"
)

// TestRefusedHandshakesAreCounted sends handshakes with something wrong to a tunnel, and one twice.
func TestRefusedHandshakesAreCounted(t *testing.T) {
	key := func() wgtypes.Key {
		k, err := wgtypes.GeneratePrivateKey()
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	own, peer, stranger := key(), key(), key()
	s := space.New(t, "calls")
	tunnelOf := func(name string, private, remote wgtypes.Key, endpoint *net.UDPAddr) (u userspaceTunnel) {
		var err error
		s.Do(func() {
			if u, err = startUserspace(name, 1340, nil); err != nil {
				return
			}
			err = u.configure(wgtypes.Config{PrivateKey: &private, ListenPort: new(0), Peers: []wgtypes.PeerConfig{{PublicKey: remote.PublicKey(), Endpoint: endpoint}}})
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(u.close)
		return u
	}
	server := tunnelOf("server", own, peer, nil)
	heard, err := server.device()
	if err != nil {
		t.Fatal(err)
	}
	to := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: heard.ListenPort}
	d := &Dataplane{tunnels: map[string]tunnel{"server": server}}
	for _, c := range []struct {
		claim       string
		from, calls wgtypes.Key
		times       int
		want        plan.Calls
	}{
		{"by somebody unknown", stranger, own, 1, plan.Calls{Strange: 1}},
		{"for another key", peer, stranger, 1, plan.Calls{Strange: 1, Misaddressed: 1}},
		{"by the peer, twice the same", peer, own, 2, plan.Calls{Strange: 1, Misaddressed: 1, Replayed: 1}},
		{"by somebody unknown, again", stranger, own, 1, plan.Calls{Strange: 2, Misaddressed: 1, Replayed: 1}},
	} {
		var relay *net.UDPConn
		s.Do(func() { relay, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}) })
		if err != nil {
			t.Fatal(err)
		}
		at, _ := relay.LocalAddr().(*net.UDPAddr)
		caller := tunnelOf("caller", c.from, c.calls, at)
		caller.dev.LookupPeer(wireguard.NoisePublicKey(c.calls.PublicKey())).SendHandshakeInitiation(false)
		packet := make([]byte, wireguard.MessageInitiationSize+1)
		n, err := relay.Read(packet)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.times {
			if i > 0 { // two at once are judged by two workers, and neither is a repetition
				if _, err := relay.Read(make([]byte, wireguard.MessageResponseSize+1)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := relay.WriteToUDP(packet[:n], to); err != nil {
				t.Fatal(err)
			}
		}
		space.Eventually(t, c.claim, func() error {
			if got, tells := d.Calls("server"); got != c.want || !tells {
				return fmt.Errorf("counted %+v, want %+v", got, c.want)
			}
			return nil
		})
		caller.close()
		relay.Close()
	}
	if _, tells := d.Calls("of the kernel"); tells {
		t.Error("the kernel tells nothing")
	}
}

// TestTunnelsListenWhereTheyAreStarted: the sockets of a tunnel are in the network namespace of the thread that starts it,
// also if WireGuard heard of the device first.
func TestTunnelsListenWhereTheyAreStarted(t *testing.T) {
	s := space.New(t, "started")
	var u userspaceTunnel
	var err error
	s.Do(func() {
		var device tun.Device
		if device, err = tun.CreateTUN("started", 1340); err == nil {
			u.dev = wireguard.NewDevice(device, conn.NewDefaultBind(), (&calls{}).logger())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.close)
	space.Eventually(t, "a device that has a port", func() error {
		if d, err := u.device(); err != nil || d.ListenPort == 0 {
			return fmt.Errorf("port %d, error %v", d.ListenPort, err)
		}
		return nil
	})
	var sockets []byte
	s.Do(func() {
		if err = u.start(); err == nil {
			sockets, err = os.ReadFile("/proc/thread-self/net/udp")
		}
	})
	if n := strings.Count(string(sockets), "\n") - 1; err != nil || n != 1 { // the first line has names
		t.Errorf("%d sockets are in the namespace, error %v:\n%s", n, err, sockets)
	}
}
