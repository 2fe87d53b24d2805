// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane_test

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/liqo-go/liqo/internal/seed"
	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/plan"
)

// TestLargeSetsChange: changes of few among many peers change elements of sets, which needs no nft. The table reads
// back as planned, also by a new process, and what somebody else did to it goes.
func TestLargeSetsChange(t *testing.T) {
	random := seed.Rand(t)
	for _, form := range []struct{ outer, ranges string }{{"10.50.%d.9", "11.0.%d.0/24"}, {"fd00:50::%x", "fd00:11:%x::/48"}} {
		in := plan.NodeStateInput{Self: plan.Member{Outer: netip.MustParseAddr(fmt.Sprintf(form.outer, 255)),
			Overlay: netip.MustParseAddr("10.80.0.1")}, Under: under, Port: 6091}
		for i := range 100 {
			in.Gateways = append(in.Gateways, plan.Member{Name: fmt.Sprint(i), Outer: netip.MustParseAddr(fmt.Sprintf(form.outer, i)),
				Overlay: netip.AddrFrom4([4]byte{10, 80, 128, byte(i)})})
		}
		changesElements(t, "arriving", func(step int) string {
			for i := range in.Gateways { // neighbouring ranges are joined, and parted again
				if step == 0 || random.IntN(50) == 0 {
					in.Gateways[i].CIDRs = prefixes(fmt.Sprintf(form.ranges, random.IntN(250)), fmt.Sprintf(form.ranges, 2*i))
				}
			}
			gone := random.IntN(len(in.Gateways))
			in.Gateways[gone].Outer = netip.MustParseAddr(fmt.Sprintf(form.outer, 100+step))
			return plan.NodeState(in).Table
		})
	}
}

// TestLargeMapsChange: the same of the IP objects in a gateway, where each peer has one.
func TestLargeMapsChange(t *testing.T) {
	random := seed.Rand(t)
	for _, form := range []struct{ external, target string }{{"10.70.%d.1", "11.0.%d.0"}, {"fd00:70::%x", "fd00:11:%x::"}} {
		in := plan.GatewayStateInput{Self: plan.Member{Outer: netip.MustParseAddr("10.50.0.9"),
			Overlay: netip.MustParseAddr("10.80.128.1")}, Under: under, Port: 6091}
		in.Tunnel = plan.TunnelInput{Address: netip.MustParsePrefix("169.254.18.1/30"),
			PeerAddress: netip.MustParseAddr("169.254.18.2"), MTU: 1340}
		for i := range 100 {
			in.Exposed = append(in.Exposed, plan.Exposed{External: netip.MustParseAddr(fmt.Sprintf(form.external, 2*i)),
				Target: netip.MustParseAddr(fmt.Sprintf(form.target, i)), Masquerade: i%3 == 0})
		}
		changesElements(t, "exposed", func(step int) string {
			in.Exposed[random.IntN(100)].Target = netip.MustParseAddr(fmt.Sprintf(form.target, 100+step))
			other := random.IntN(100)
			in.Exposed[other].External = netip.MustParseAddr(fmt.Sprintf(form.external, 2*other+step%2))
			return plan.GatewayState(in).Table
		})
	}
}

// changesElements writes the tables of 60 steps, without nft except for the first and after somebody else added a rule
// to a chain.
func changesElements(t *testing.T, chain string, table func(step int) string) {
	t.Helper()
	path, s := os.Getenv("PATH"), space.New(t, "node")
	e := open(t, s, plan.NodeState)
	var have plan.State
	for step := range 60 {
		want := plan.State{Table: table(step)}
		if step == 30 {
			s.Run("", "nft", "add", "rule", "inet", plan.NFTable, chain, "counter")
		} else if step > 0 {
			t.Setenv("PATH", "")
		}
		var err error
		s.Do(func() { err = e.plane.Apply(t.Context(), plan.Diff(have, want)) })
		if t.Setenv("PATH", path); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if have = want; step%3 != 0 {
			continue
		}
		if diff := cmp.Diff(want.Table, e.observe(t).Table); diff != "" {
			t.Fatalf("step %d: %s", step, diff)
		}
	}
	other := open(t, s, plan.NodeState)
	if diff := cmp.Diff(have.Table, other.observe(t).Table); diff != "" {
		t.Errorf("another process finds %s", diff)
	}
}
