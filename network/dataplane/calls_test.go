// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"fmt"
	"net"
	"testing"

	"golang.zx2c4.com/wireguard/device"
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
		caller.dev.LookupPeer(device.NoisePublicKey(c.calls.PublicKey())).SendHandshakeInitiation(false)
		packet := make([]byte, device.MessageInitiationSize+1)
		n, err := relay.Read(packet)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.times {
			if i > 0 { // two at once are judged by two workers, and neither is a repetition
				if _, err := relay.Read(make([]byte, device.MessageResponseSize+1)); err != nil {
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
