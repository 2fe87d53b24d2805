// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/plan"
)

// TestKernelBeforeUserspace: a tunnel uses the kernel's WireGuard if there is one, else that of
// this process. Either carries packets, is read back as it was written, and follows every change.
// The kernel's also outlives the process. `make test-kernel` runs it on a kernel with WireGuard.
func TestKernelBeforeUserspace(t *testing.T) {
	wanted := implementation(t)
	t.Logf("WireGuard: %s", wanted)
	_, a, b := peered(t)
	server, client := a.gateways[0], b.gateways[0]
	steps := []struct {
		what string
		do   func()
	}{
		{"made", func() {}},
		{"the client begins anew with the server", func() {
			var err error
			client.Do(func() { err = client.plane.DialAnew("liqo-tunnel", client.in.Tunnel.PeerKey, netip.AddrPort{}, 0) })
			if err != nil {
				t.Error(err)
			}
		}},
		{"the client takes the server out and puts it back", func() {
			var err error
			client.Do(func() { err = client.plane.Redial("liqo-tunnel", client.in.Tunnel.PeerKey) })
			if err != nil {
				t.Error(err)
			}
			client.settle(t)
		}},
		{"the processes are started again", func() {
			for _, g := range []*end[plan.GatewayStateInput]{server, client} {
				g.open(t)
				if changes := g.settle(t); changes.Empty() != (wanted == dataplane.Kernel) {
					t.Errorf("%s: after it a pass changes\n%s", g.Name, changes)
				}
			}
		}},
		{"the client has another key", func() {
			client.key = key(t)
			client.in.Tunnel.PublicKey = client.key.PublicKey().String()
			server.in.Tunnel.PeerKey = client.in.Tunnel.PublicKey
			client.open(t)
			server.settle(t)
			client.settle(t)
		}},
	}
	for _, s := range steps {
		s.do()
		waitFor(t, b.Gateway)
		bothWays(t, a, b)
		a.Pod.PingsUntilAnswered(t, "10.71.1.2")
		server.runs(t, s.what, wanted)
		client.runs(t, s.what, wanted)
	}
}

// implementation returns which WireGuard a tunnel of this kernel uses.
func implementation(t *testing.T) string {
	t.Helper()
	out, err := space.New(t, "trial").Try("", "ip", "link", "add", "trial", "type", "wireguard")
	if err == nil {
		return dataplane.Kernel
	}
	if !strings.Contains(out, "Unknown device type") && !strings.Contains(out, "not supported") {
		t.Fatalf("ask the kernel for WireGuard: %v: %s", err, out)
	}
	return dataplane.Userspace
}

func key(t *testing.T) wgtypes.Key {
	t.Helper()
	k, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// open ends the process and starts another, which does nothing yet.
func (e *end[In]) open(t *testing.T) {
	t.Helper()
	e.plane.Close()
	var err error
	e.Do(func() { e.plane, err = dataplane.Open(dataplane.Options{PrivateKey: e.key, Dial: e.Dial}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.plane.Close)
}

// runs looks which WireGuard the tunnel is, in the kernel's words too, and whether a pass finds it as
// it was written and its counters count.
func (e *end[In]) runs(t *testing.T, when, want string) {
	t.Helper()
	kind := map[string]string{dataplane.Kernel: "wireguard", dataplane.Userspace: "tun"}[want]
	link := strings.Fields(e.IP("-d -o link show liqo-tunnel"))
	if got := e.plane.Implementation("liqo-tunnel"); got != want || !slices.Contains(link, kind) {
		t.Errorf("%s: %s: the tunnel is of %s, want %s; its device\n%s", when, e.Name, got, want, link)
	}
	if changes := e.settle(t); !changes.Empty() {
		t.Errorf("%s: %s: a second pass changes\n%s", when, e.Name, changes)
	}
	peer := e.observe(t).Peers[0]
	var traffic plan.Traffic
	var err error
	e.Do(func() { traffic, err = e.plane.Traffic("liqo-tunnel", peer.PublicKey) })
	if err != nil || traffic.Received == 0 || traffic.Sent == 0 || traffic.Handshake.IsZero() {
		t.Errorf("%s: %s: traffic %+v, error %v", when, e.Name, traffic, err)
	}
}
