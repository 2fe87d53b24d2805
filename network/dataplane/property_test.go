// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/seed"
	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/plan"
)

var soak = flag.Bool("soak", false, "try 100 sequences, not 2")

// TestAnySequenceLeavesNothing: after any sequence of changes the kernel is in the desired state,
// and nothing is left at the end.
func TestAnySequenceLeavesNothing(t *testing.T) {
	from, count := seed.Of(t), uint64(2)
	if *soak {
		count = 100
	}
	for i := range count {
		t.Run(fmt.Sprint("sequence ", i), func(t *testing.T) {
			r := rand.New(rand.NewPCG(from, i))
			s := space.New(t, "host")
			s.IP("link add eth0 type veth peer name eth1")
			s.IP("link set eth0 up")
			s.IP("addr add 10.10.1.5/24 dev eth0")
			s.IP("route add default via 10.10.1.1")
			e := open(t, s, func(plan.State) plan.State { return plan.State{} })
			key := e.key.PublicKey().String()
			s.IP("link set eth1 up")
			space.Eventually(t, "links", func() error { // the kernel's own work on a new link is done
				if out := s.IP("addr show tentative"); out != "" {
					return fmt.Errorf("tentative\n%s", out)
				}
				return nil
			})
			e.reach(t, plan.State{Settings: []plan.Setting{
				{Device: "eth0", Name: plan.SettingForwarding, Value: 1}, {Device: "eth0", Name: plan.SettingReversePath, Value: 2},
			}}) // settings stay
			before := everything(s)
			for step := range 12 {
				want := randomDesired(r, key)
				if r.IntN(3) == 0 { // somebody else is at work, too
					s.Try("", "ip", "route", "flush", "table", "6091") // if there is one
					s.Try("", "ip", "link", "delete", "liqo.ovl")
				}
				e.reach(t, want)
				if changes := plan.Diff(e.observe(t), want); !changes.Empty() {
					t.Fatalf("step %d: there is still to do\n%s", step, changes)
				}
			}
			e.reach(t, plan.State{})
			if diff := cmp.Diff(before, everything(s)); diff != "" {
				t.Errorf("what is left:\n%s", diff)
			}
		})
	}
}

// reach applies the changes since the last observation, and repeats until there are none, as the
// daemon does: some changes delete other items with them.
func (e *end[In]) reach(t *testing.T, want plan.State) {
	t.Helper()
	changes := plan.Diff(e.last, want)
	e.Do(func() { e.plane.Apply(context.Background(), changes) }) // what fails is found below
	for range 3 {
		e.last = e.observe(t)
		if changes = plan.Diff(e.last, want); changes.Empty() {
			return
		}
		var err error
		e.Do(func() { err = e.plane.Apply(context.Background(), changes) })
		if err != nil {
			t.Fatalf("%v\n%s", err, changes)
		}
	}
}

// randomDesired returns a state that a gateway or node may want, now and then the empty one.
func randomDesired(r *rand.Rand, key string) plan.State {
	some := func(all ...netip.Prefix) []netip.Prefix {
		r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		return all[:r.IntN(len(all)+1)]
	}
	member := func(i int) plan.Member {
		m := plan.Member{
			Name: fmt.Sprint("m", i), Outer: netip.AddrFrom4([4]byte{192, 168, byte(r.IntN(3)), byte(i)}),
			Overlay: netip.AddrFrom4([4]byte{10, 80, 0, byte(i)}), CIDRs: some(prefixes(fmt.Sprintf("10.%d.0.0/16", 20+i), fmt.Sprintf("fd00:%d::/64", 20+i), "10.9.9.9/32")...),
		}
		if r.IntN(3) == 0 {
			m.MTU = 1300
		}
		return m
	}
	members := []plan.Member{member(1), member(2), member(3)}[:r.IntN(4)]
	self := member(9)
	self.Outer, self.CIDRs = netip.MustParseAddr("10.10.1.5"), prefixes("10.10.1.0/24")
	var want plan.State
	switch r.IntN(5) {
	case 0:
	case 1:
		want = plan.NodeState(plan.NodeStateInput{Self: self, Under: under, Gateways: members, Nodes: []netip.Addr{self.Outer}, Port: 6091 + r.IntN(2)})
	default:
		want = plan.GatewayState(randomGateway(r, self, members, key, some))
	}
	return want.With(randomContents(r))
}

func randomGateway(r *rand.Rand, self plan.Member, members []plan.Member, key string, some func(...netip.Prefix) []netip.Prefix) plan.GatewayStateInput {
	in := plan.GatewayStateInput{
		Self: self, Node: "m1", Under: under, Nodes: members, Pods: some(prefixes("10.10.0.0/16", "10.11.0.0/16", "fd00:10::/64")...),
		External: some(prefixes("10.70.0.0/16")...), Port: 6091,
	}
	for _, p := range some(prefixes("10.10.0.0/16", "10.70.0.0/16", "10.12.0.0/16")...) {
		view := p
		if r.IntN(2) == 0 {
			view = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(200 + len(in.Remote)), 0, 0}), 16)
		}
		in.Remote = append(in.Remote, netv1beta1.Mapping{Remote: p, Local: view})
	}
	for _, e := range []plan.Exposed{exposed("10.70.0.2", "10.10.1.9", false), exposed("10.70.0.3", "192.0.2.9", false), exposed("10.70.0.4", "192.0.2.9", true)} {
		if r.IntN(2) == 0 {
			in.Exposed = append(in.Exposed, e)
		}
	}
	own, peer := plan.TunnelAddresses(r.IntN(2) == 0)
	in.Tunnel = plan.TunnelInput{Address: own, PeerAddress: peer, MTU: 1280 + r.IntN(2)*60, PublicKey: key, TCP: r.IntN(4) == 0}
	if r.IntN(3) > 0 {
		in.Tunnel.PeerKey = []string{ // any key will do, nobody answers
			"17XoHTNuV4sTuNcG6C0GHjA4yWvOZs3PUNVmuW3buhA=", "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=",
		}[r.IntN(2)]
		in.Tunnel.Endpoint = netip.AddrPortFrom(netip.MustParseAddr("192.0.2.7"), uint16(r.IntN(3)))
	}
	in.Tunnel.Dial = []int{51841, 51842, 51843}[:r.IntN(4)]
	return in
}

// randomContents returns rules of users, valid and invalid ones.
func randomContents(r *rand.Rand) []plan.Content {
	var out []plan.Content
	for i := range 3 {
		table := plan.UserTables + i
		c := plan.Content{
			Tables: []plan.Table{{Family: "ip", Name: fmt.Sprint("liqo/ns/", i), Text: fmt.Sprintf("table ip liqo/ns/%d {\n\tchain c%d {\n\t\ttype filter hook forward priority filter; policy accept;\n\t}\n}\n", i, r.IntN(2))}},
			Rules:  []plan.Rule{{Priority: 70 + r.IntN(2), Table: table, Mark: uint32(r.IntN(2))}},
			Routes: []plan.Route{{Table: table, To: netip.MustParsePrefix("10.99.0.0/16"), Device: []string{"eth0", "absent"}[r.IntN(2)], Scope: "link"}},
		}
		if i == 2 {
			c.Tables[0].Text = "broken"
		}
		if r.IntN(2) == 0 {
			out = append(out, c)
		}
	}
	return out
}

// TestQuotesAreReadBack: another process reads them as they were written, and rules that somebody
// changed are written again.
func TestQuotesAreReadBack(t *testing.T) {
	s := space.New(t, "gateway")
	nothing := func(plan.State) plan.State { return plan.State{} }
	first, second := open(t, s, nothing), open(t, s, nothing)
	q := plan.Quote{Device: "liqo-tunnel*", Inbound: true, From: netip.MustParsePrefix("10.10.0.0/17"), To: netip.MustParsePrefix("10.71.128.0/17")}
	back := plan.Quote{Device: "liqo-tunnel", From: q.To, To: q.From}
	want := plan.State{Quotes: []plan.Quote{q, back}}
	first.apply(t, want)
	if changes := second.apply(t, want); !changes.Empty() {
		t.Errorf("another process changes\n%s", changes)
	}
	s.NFT("flush chain ip liqo-quoted to-peer")
	if changes := first.apply(t, want); changes.Quotes == nil {
		t.Error("a change is not seen")
	}
	if changes := first.apply(t, want); !changes.Empty() {
		t.Errorf("a second pass changes\n%s", changes)
	}
}
