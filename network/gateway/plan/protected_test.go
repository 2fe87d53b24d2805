// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestProtectedAddressesLag: the rules have the first addresses at once, later ones when they were unchanged for a second,
// and never lag by more than five.
func TestProtectedAddressesLag(t *testing.T) {
	t.Parallel()
	a, b, c := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.3")
	var p Protected
	began := time.Now()
	step := func(at time.Duration, wanted, want []netip.Addr, wantWait time.Duration) {
		t.Helper()
		if use, wait := p.Follow(wanted, began.Add(at)); !slices.Equal(use, want) || wait != wantWait {
			t.Errorf("after %v: %v, again in %v; want %v, %v", at, use, wait, want, wantWait)
		}
	}
	step(0, []netip.Addr{b, a}, []netip.Addr{a, b}, 0)
	step(10*time.Second, []netip.Addr{a, b}, []netip.Addr{a, b}, 0)
	step(20*time.Second, []netip.Addr{a, c}, []netip.Addr{a, b}, time.Second)
	step(20500*time.Millisecond, []netip.Addr{a, c}, []netip.Addr{a, b}, 500*time.Millisecond)
	step(21*time.Second, []netip.Addr{a, c}, []netip.Addr{a, c}, 0)
	for i := range 10 { // a change each half second
		at := 30*time.Second + time.Duration(i)*500*time.Millisecond
		step(at, [][]netip.Addr{{a}, {b}}[i%2], []netip.Addr{a, c}, min(time.Second, 35*time.Second-at))
	}
	step(35*time.Second, []netip.Addr{c}, []netip.Addr{c}, 0)
	step(36*time.Second, []netip.Addr{b}, []netip.Addr{c}, time.Second)
	step(36100*time.Millisecond, []netip.Addr{c}, []netip.Addr{c}, 0) // back as before
}
