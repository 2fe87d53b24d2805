// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// protectedQuiet is how long the protected addresses must be unchanged before the rules follow, and protectedMost
	// the longest time that rules lag behind. A drained node changes these addresses some ten times within seconds,
	// just when gateways move too. Each change rewrites the table, which takes 0.1 s on a busy node, and a move would
	// wait for it.
	protectedQuiet, protectedMost = time.Second, 5 * time.Second
)

// Protected delays changes of the protected addresses, so that many changes become one. The zero value has none yet.
type Protected struct {
	// known is set after the first call of Follow, whose addresses are used immediately.
	known bool
	// used are the addresses in the rules, wanted the latest ones.
	used, wanted []netip.Addr
	// changed is when wanted last changed, different since when it differs from used.
	changed, different time.Time
}

// Follow returns the addresses to use now. If wanted is not used yet, wait is the time until it will be; else 0.
func (p *Protected) Follow(wanted []netip.Addr, now time.Time) (use []netip.Addr, wait time.Duration) {
	wanted = slices.SortedFunc(slices.Values(wanted), netip.Addr.Compare)
	if !p.known {
		p.known, p.used, p.wanted = true, wanted, wanted
	}
	if !slices.Equal(wanted, p.wanted) {
		if slices.Equal(p.wanted, p.used) {
			p.different = now
		}
		p.wanted, p.changed = wanted, now
	}
	if slices.Equal(p.wanted, p.used) {
		return p.used, 0
	}
	if wait = min(protectedQuiet-now.Sub(p.changed), protectedMost-now.Sub(p.different)); wait > 0 {
		return p.used, wait
	}
	p.used = p.wanted
	return p.used, 0
}
