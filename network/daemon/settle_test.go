// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package daemon

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/plan"
)

// TestChangesByOthersAreFound: changes of the plan are applied on top of the last observation,
// although others have changed the kernel since. In the end the kernel is in the desired state.
func TestChangesByOthersAreFound(t *testing.T) {
	t.Parallel()
	s := space.New(t, "host")
	s.IP("link add eth0 type veth peer name eth1")
	s.IP("link set eth0 up")
	s.IP("addr add 10.10.1.5/24 dev eth0")
	var plane *dataplane.Dataplane
	var err error
	s.Do(func() { plane, err = dataplane.Open(dataplane.Options{}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plane.Close)
	d := New(Role{Name: "fabric"}, plane)
	<-d.looks // as keep does
	var users []plan.Content
	reread := true
	settled := func(peers ...string) plan.Changes {
		t.Helper()
		in := plan.NodeStateInput{
			Self:  plan.Member{Name: "n1", Outer: netip.MustParseAddr("10.10.1.5"), Overlay: netip.MustParseAddr("10.80.0.9")},
			Under: plan.Underlay{Device: "eth0", MTU: 1500}, Port: 6091,
		}
		for i, cidr := range peers {
			in.Gateways = append(in.Gateways, plan.Member{
				Name: cidr, Outer: netip.AddrFrom4([4]byte{192, 168, 0, byte(i + 1)}), Overlay: netip.AddrFrom4([4]byte{10, 80, 0, byte(i + 1)}),
				CIDRs: []netip.Prefix{netip.MustParsePrefix(cidr)},
			})
		}
		want := plan.NodeState(in).With(users)
		var have plan.State
		s.Do(func() {
			if err = d.settle(t.Context(), want, reread); err == nil {
				have, err = plane.Observe(t.Context(), "eth0")
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return plan.Diff(have, want)
	}
	settle := func(peers ...string) {
		t.Helper()
		if changes := settled(peers...); !changes.Empty() {
			t.Fatalf("with %v there is still to do\n%s", peers, changes)
		}
	}
	made := func() int64 { return d.counts.changes.Load() }

	settle("10.20.0.0/16", "10.30.0.0/16")
	before := made()
	settle("10.20.0.0/16", "10.30.0.0/16", "10.40.0.0/16")
	if n := made() - before; n != 1 {
		t.Errorf("a peer more was %d changes, want one", n)
	}
	for _, others := range []struct{ name, command string }{
		{"took a route away", "route delete 10.20.0.0/16 table 6091"},
		{"took a route away that is to go", "route delete 10.40.0.0/16 table 6091"},
		{"took away what all needs", "link delete liqo.ovl"},
		{"made what is wanted", "route add 10.50.0.0/16 via 10.80.0.3 dev liqo.ovl onlink table 6091"},
	} {
		t.Log("somebody ", others.name)
		s.IP(others.command)
		settle("10.20.0.0/16", "10.30.0.0/16", "10.50.0.0/16")
		settle("10.20.0.0/16", "10.30.0.0/16", "10.40.0.0/16")
	}
	s.IP("route delete 10.20.0.0/16 table 6091")
	reread = false
	if changes := settled("10.20.0.0/16", "10.60.0.0/16", "10.40.0.0/16"); len(changes.Routes) != 1 || !d.unverified {
		t.Errorf("a change of a peer reads the kernel, or is not to be verified; there is to do\n%s", changes)
	}
	reread = true
	if settle("10.20.0.0/16", "10.60.0.0/16", "10.40.0.0/16"); d.unverified {
		t.Error("what was read is to be verified")
	}
	s.IP("route delete 10.20.0.0/16 table 6091")
	d.Look()
	if changes := settled("10.20.0.0/16", "10.30.0.0/16"); len(changes.Routes) != 1 {
		t.Errorf("while another look is asked for the kernel is read; there is to do\n%s", changes)
	}
	<-d.looks
	settle("10.20.0.0/16", "10.30.0.0/16")
	users = []plan.Content{{Rules: []plan.Rule{{Priority: 70, Table: plan.UserTables, From: netip.MustParsePrefix("10.72.0.0/16")}}}}
	add := fmt.Sprint("rule add priority 70 from 10.72.0.0/16 table ", plan.UserTables)
	s.IP(add)
	settle("10.20.0.0/16")
	if refused := plane.Refused(users[0]); refused != nil {
		t.Errorf("a user's rule that stands already: %s", refused)
	}
	wanted := users
	users = nil
	settle("10.20.0.0/16")
	before = made()
	s.IP(add)
	d.Changed()
	users = wanted
	settle("10.20.0.0/16")
	if n := made() - before; n != 0 {
		t.Errorf("what this process changed itself was changed %d times more", n)
	}
	users = nil
	settle()
	if diff := cmp.Diff("", s.IP("route show table all 10.0.0.0/8 table 6091")); diff != "" {
		t.Errorf("left: %s", diff)
	}
}
