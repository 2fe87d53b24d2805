// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/seed"
)

// member of a mesh: its pod CIDRs, its external CIDR last, and how it sees the others'.
type meshed struct {
	cidrs []netip.Prefix
	views map[int]netv1beta1.Mappings
}

// TestEveryPodIsReached: three clusters with any CIDRs – equal, overlapping, separate, several –
// reach each other's pods and external addresses in both directions. Each address means one pod
// only, and without overlaps nothing is translated.
func TestEveryPodIsReached(t *testing.T) {
	for n, r := range seed.Samples(t, 300) {
		mesh := randomMesh(r)
		for a := range mesh {
			for b := range mesh {
				if a != b {
					reaches(t, fmt.Sprintf("sample %d, %d to %d", n, a, b), r, mesh, a, b)
				}
			}
		}
		if t.Failed() {
			t.Fatalf("sample %d: clusters %+v", n, mesh)
		}
	}
}

// randomMesh assigns CIDRs to clusters from few ranges, and remaps them as address allocation does:
// to the real CIDR if it is free, else to another of the same size.
func randomMesh(r *rand.Rand) []meshed {
	pool := prefixList("10.10.0.0/16", "10.10.0.0/17", "10.10.128.0/18", "10.11.0.0/16", "10.10.64.0/24", "10.12.0.0/16", "172.16.0.0/20")
	mesh := make([]meshed, 3)
	for i := range mesh {
		free := slices.Clone(pool)
		for range 1 + r.IntN(3) {
			p := free[r.IntN(len(free))]
			mesh[i].cidrs = append(mesh[i].cidrs, p)
			if free = slices.DeleteFunc(free, p.Overlaps); len(free) == 0 {
				break
			}
		}
		mesh[i].cidrs = append(mesh[i].cidrs, prefixList("10.70.0.0/16", "10.71.0.0/16")[r.IntN(2)])
	}
	for i := range mesh {
		taken, next := slices.Clone(mesh[i].cidrs), netip.MustParseAddr("10.200.0.0")
		mesh[i].views = map[int]netv1beta1.Mappings{}
		for j := range mesh {
			if i == j {
				continue
			}
			for _, real := range mesh[j].cidrs {
				view := real
				if slices.ContainsFunc(taken, view.Overlaps) {
					view = netip.PrefixFrom(next, real.Bits())
					next = netip.AddrFrom4([4]byte{10, next.As4()[1] + 1})
				}
				taken = append(taken, view)
				mesh[i].views[j] = append(mesh[i].views[j], netv1beta1.Mapping{Remote: real, Local: view})
			}
		}
	}
	return mesh
}

// reaches sends a packet from a to b, and its answer.
func reaches(t *testing.T, what string, r *rand.Rand, mesh []meshed, a, b int) {
	t.Helper()
	from, to := gatewayTo(mesh, a, b), gatewayTo(mesh, b, a)
	source := randomAddr(r, mesh[a].cidrs[r.IntN(len(mesh[a].cidrs))])
	remap := mesh[a].views[b][r.IntN(len(mesh[a].views[b]))]
	pod := randomAddr(r, remap.Remote)
	dialled := moved(pod, remap)
	if got := carried(from, to, source, dialled); len(got) != 2 || got[1] != pod {
		t.Errorf("%s: %s dials %s for %s, arrived as %v", what, source, dialled, pod, got)
	} else if back := carried(to, from, pod, got[0]); len(back) != 2 || back[0] != dialled || back[1] != source {
		t.Errorf("%s: %s answers %s, arrived as %v, not from %s to %s", what, pod, got[0], back, dialled, source)
	}
	same := !slices.ContainsFunc(mesh[a].views[b], func(r netv1beta1.Mapping) bool { return r.Remote != r.Local })
	if translates := regexp.MustCompile(`(iif|ip saddr .* |ip daddr .* )ip [sd]addr set ip [sd]addr &`).MatchString(from.Table) || len(from.Quotes) > 0; translates == same {
		t.Errorf("%s: translates %t, though views are real: %t\n%s", what, translates, same, from.Table)
	}
}

func gatewayTo(mesh []meshed, a, b int) State {
	own, peer := TunnelAddresses(a < b)
	last := len(mesh[a].cidrs) - 1
	return GatewayState(GatewayStateInput{
		Under: Underlay{Device: "eth0", MTU: 1500}, Port: 6091, Pods: mesh[a].cidrs[:last], External: mesh[a].cidrs[last:], Remote: mesh[a].views[b],
		Tunnel: TunnelInput{Address: own, PeerAddress: peer, MTU: 1340, PeerKey: "peer"},
	})
}

// carried returns the source and destination of a packet after the tunnel; nil if it is dropped.
func carried(from, to State, source, destination netip.Addr) []netip.Addr {
	route := func(r Route) bool { return r.Device == "liqo-tunnel" && r.To.Contains(destination) }
	if !slices.ContainsFunc(from.Routes, route) {
		return nil
	}
	destination, _ = through(from.Table, "to-peer", "ip daddr ", destination)
	if !slices.ContainsFunc(to.Peers[0].AllowedIPs, func(p netip.Prefix) bool { return p.Contains(source) }) {
		return nil
	}
	source, ok := through(to.Table, "from-peer", "ip saddr ", source)
	if !ok {
		return nil
	}
	return []netip.Addr{source, destination}
}

// through applies to an address the rules of a chain that begin with a match of it.
func through(table, chain, begin string, addr netip.Addr) (_ netip.Addr, accepted bool) {
	_, rules, _ := strings.Cut(table, "chain "+chain+" {")
	rules, _, _ = strings.Cut(rules, "\t}")
	for line := range strings.Lines(rules) {
		test, ok := strings.CutPrefix(strings.TrimSpace(line), begin)
		if !ok || strings.HasPrefix(test, "!=") {
			continue
		}
		test, set, rewrites := strings.Cut(test, " ip ")
		if !within(strings.TrimSuffix(test, " accept"), addr) {
			continue
		}
		if rewrites {
			words := strings.Fields(set) // saddr set ip saddr & mask | bits accept
			mask, bits, out := netip.MustParseAddr(words[5]).As4(), netip.MustParseAddr(words[7]).As4(), addr.As4()
			for i := range out {
				out[i] = out[i]&mask[i] | bits[i]
			}
			addr = netip.AddrFrom4(out)
		}
		return addr, true
	}
	return addr, false
}

// within reports whether a set of nft contains an address.
func within(set string, addr netip.Addr) bool {
	for _, x := range strings.FieldsFunc(set, func(r rune) bool { return strings.ContainsRune("{}, ", r) }) {
		a, err := parseAddresses(x)
		if err == nil && a.from.Compare(addr) <= 0 && addr.Compare(a.to) <= 0 {
			return true
		}
	}
	return false
}

// moved returns what an address of a remapped CIDR is remapped to.
func moved(a netip.Addr, r netv1beta1.Mapping) netip.Addr {
	out, real, view := a.As4(), r.Remote.Addr().As4(), r.Local.Addr().As4()
	for i := range out {
		out[i] = out[i] ^ real[i] ^ view[i]
	}
	return netip.AddrFrom4(out)
}

func prefixList(list ...string) []netip.Prefix { return netv1beta1.ParseRanges(list...) }
