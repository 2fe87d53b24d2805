// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"testing/quick"

	"github.com/liqo-go/liqo/reflection/translate"
)

// Remapping there and back is the identity, for every prefix length, inside the prefix; outside
// nothing moves.
func TestRemapIsABijection(t *testing.T) {
	back := func(addr, from, to uint32, length uint8) bool {
		bits := int(length % 33)
		there := translate.Remap{From: prefix(from, bits), To: prefix(to, bits)}
		home := translate.Remap{From: there.To, To: there.From}
		in := ip(addr)
		if !there.From.Contains(in) {
			return translate.Addr([]translate.Remap{there}, in) == in
		}
		out := translate.Addr([]translate.Remap{there}, in)
		return there.To.Contains(out) && translate.Addr([]translate.Remap{home}, out) == in
	}
	inside := func(host, from, to uint32, length uint8) bool {
		bits := int(length % 33)
		mask := ^uint32(0) >> bits // bits of the host part; a shift by 32 gives 0
		base := binary.BigEndian.Uint32(prefix(from, bits).Addr().AsSlice())
		return back(base|host&mask, from, to, length)
	}
	for _, property := range []any{back, inside} {
		if err := quick.Check(property, nil); err != nil {
			t.Error(err)
		}
	}
}

func TestRemapIPv6(t *testing.T) {
	remaps := []translate.Remap{{From: netip.MustParsePrefix("fd00:1::/61"), To: netip.MustParsePrefix("fd00:2:0:8::/61")}}
	got := translate.Addr(remaps, netip.MustParseAddr("fd00:1:0:3::9"))
	if want := netip.MustParseAddr("fd00:2:0:b::9"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func ip(n uint32) netip.Addr { return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, n))) }

func prefix(n uint32, bits int) netip.Prefix { return netip.PrefixFrom(ip(n), bits).Masked() }
