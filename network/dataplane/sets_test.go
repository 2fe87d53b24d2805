// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/plan"
)

// TestTimedLargeSetsChange: changes of few among many peers change elements of sets, which needs no nft. The table reads
// back as planned, also by a new process, and what somebody else did to it goes.
func TestTimedLargeSetsChange(t *testing.T) {
	path := os.Getenv("PATH")
	for _, form := range []struct{ outer, ranges string }{{"10.50.%d.9", "11.0.%d.0/24"}, {"fd00:50::%x", "fd00:11:%x::/48"}} {
		s := space.New(t, "node")
		e := open(t, s, plan.NodeState)
		random := rand.New(rand.NewPCG(1, 2))
		in := plan.NodeStateInput{Self: plan.Member{Outer: netip.MustParseAddr(fmt.Sprintf(form.outer, 255)),
			Overlay: netip.MustParseAddr("10.80.0.1")}, Under: under, Port: 6091}
		for i := range 100 {
			in.Gateways = append(in.Gateways, plan.Member{Name: fmt.Sprint(i), Outer: netip.MustParseAddr(fmt.Sprintf(form.outer, i)),
				Overlay: netip.AddrFrom4([4]byte{10, 80, 128, byte(i)})})
		}
		var have plan.State
		for step := range 60 {
			for i := range in.Gateways { // neighbouring ranges are joined, and parted again
				if step == 0 || random.IntN(50) == 0 {
					in.Gateways[i].CIDRs = prefixes(fmt.Sprintf(form.ranges, random.IntN(250)), fmt.Sprintf(form.ranges, 2*i))
				}
			}
			gone := random.IntN(len(in.Gateways))
			in.Gateways[gone].Outer = netip.MustParseAddr(fmt.Sprintf(form.outer, 100+step))
			want := plan.State{Table: plan.NodeState(in).Table}
			if step == 30 {
				s.Run("", "nft", "add", "rule", "inet", plan.NFTable, "arriving", "counter")
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
}
