// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	kernel "github.com/liqo-go/liqo/network/plan"
)

// Address arithmetic for both families. Taken space is a list of prefixes in any order that may
// overlap each other; a single address is a prefix of full length.

// freeBlock returns a block as long as wish that lies in a pool and overlaps nothing taken.
// The pool that holds wish is searched first, from wish upwards and then from its start, so that
// a remapped CIDR stays close to the wished one; then the other pools in their order.
func freeBlock(wish netip.Prefix, pools, taken []netip.Prefix) (netip.Prefix, bool) {
	wish = wish.Masked()
	i := slices.IndexFunc(pools, func(pool netip.Prefix) bool { return covers(pool, wish) })
	if i >= 0 {
		if block, ok := firstFree(wish, pools[i], taken); ok {
			return block, true
		}
		pools = slices.Concat(pools[i:i+1], pools[:i], pools[i+1:])
	}
	for _, pool := range pools {
		if pool.Addr().Is4() != wish.Addr().Is4() || pool.Bits() > wish.Bits() {
			continue
		}
		start := netip.PrefixFrom(kernel.First(pool), wish.Bits())
		if block, ok := firstFree(start, pool, taken); ok {
			return block, true
		}
	}
	return netip.Prefix{}, false
}

// firstFree returns the first block from start upwards that lies in pool and overlaps nothing
// taken. It walks once over what is taken: there may be thousands of networks of peers.
func firstFree(start, pool netip.Prefix, taken []netip.Prefix) (netip.Prefix, bool) {
	taken = slices.SortedFunc(slices.Values(taken), func(a, b netip.Prefix) int {
		return cmp.Or(a.Masked().Addr().Compare(b.Masked().Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	block := start
	for _, t := range taken {
		if !block.Overlaps(t) {
			continue
		}
		wider := netip.PrefixFrom(block.Addr(), min(block.Bits(), t.Bits())).Masked()
		next := kernel.Last(wider).Next()
		if !next.IsValid() {
			return netip.Prefix{}, false
		}
		block = netip.PrefixFrom(next, block.Bits())
	}
	return block, pool.Contains(block.Addr())
}

// freeAddress returns an unused address of cidr. The first skip addresses are left out. The search
// starts at the from-th of the others and wraps around; from may be any number.
func freeAddress(cidr netip.Prefix, skip, from uint64, used []netip.Addr) (netip.Addr, bool) {
	taken := make(map[netip.Addr]bool, len(used))
	for _, a := range used {
		taken[a] = true
	}
	lowest, ok := plus(kernel.First(cidr), skip)
	if !ok || !cidr.Contains(lowest) {
		return netip.Addr{}, false
	}
	size := uint64(1) << min(cidr.Addr().BitLen()-cidr.Bits(), 63)
	start, _ := plus(lowest, from%(size-min(skip, size-1)))
	for addr := start; cidr.Contains(addr); addr = addr.Next() {
		if !taken[addr] {
			return addr, true
		}
	}
	for addr := lowest; addr != start; addr = addr.Next() {
		if !taken[addr] {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// plus returns the address n after a; false when the family has no such address.
func plus(a netip.Addr, n uint64) (netip.Addr, bool) {
	if a.Is4() {
		b := a.As4()
		sum := uint64(binary.BigEndian.Uint32(b[:])) + n
		if sum>>32 != 0 || sum < n {
			return netip.Addr{}, false
		}
		binary.BigEndian.PutUint32(b[:], uint32(sum))
		return netip.AddrFrom4(b), true
	}
	b := a.As16()
	high, low := binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	sum := low + n
	if sum < low {
		if high++; high == 0 {
			return netip.Addr{}, false
		}
	}
	binary.BigEndian.PutUint64(b[:8], high)
	binary.BigEndian.PutUint64(b[8:], sum)
	return netip.AddrFrom16(b), true
}

// halves splits a prefix in two; false when it is a single address.
func halves(p netip.Prefix) (low, high netip.Prefix, ok bool) {
	bits := p.Bits() + 1
	if bits > p.Addr().BitLen() {
		return netip.Prefix{}, netip.Prefix{}, false
	}
	low = netip.PrefixFrom(kernel.First(p), bits)
	return low, netip.PrefixFrom(kernel.Last(low).Next(), bits), true
}

// covers reports whether inner lies wholly in outer.
func covers(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}
