// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/liqo-go/liqo/network/plan"
)

// The kernel cannot change a set that is part of a rule, so nft would replace the whole table, which
// takes longer the more peers there are. Where our table has a large set, its sets of addresses are
// therefore written with names, and their elements change one by one. A State has them in the rules.
// The same applies to maps from addresses to addresses, which the kernel treats as sets with data.

const (
	// largeSet is the number of elements from which a set is large.
	largeSet = 64
	// fewElements is how many elements change one by one at most; beyond, the table is replaced.
	fewElements = 256
)

// namedSet is a set of addresses of one family, or a map between them.
type namedSet struct {
	six, isMap bool
	elements   string // as in a rule: sorted, separated by commas
}

// hasRanges reports whether elements are ranges of addresses, which makes the set an interval set.
func (s namedSet) hasRanges() bool { return strings.ContainsAny(s.elements, "/-") }

func setName(n int) string { return fmt.Sprint("large", n) }

// apart is a table whose rules refer to sets by their names.
type apart struct {
	text string
	sets []namedSet
}

// takeApart gives the sets of addresses of a table names if one is large.
func takeApart(text string) apart {
	if out := takeSets(text, largeSet); len(out.sets) == 0 {
		return out
	}
	return takeSets(text, 2)
}

// takeSets gives sets with so many elements or more names; equal sets share one.
func takeSets(text string, limit int) (out apart) {
	var b strings.Builder
	for {
		before, after, _ := strings.Cut(text, "{ ")
		elements, rest, found := strings.Cut(after, " }")
		if !found {
			b.WriteString(text)
			out.text = b.String()
			return out
		}
		b.WriteString(before)
		field, isMap := strings.CutSuffix(strings.TrimSuffix(before, "!= "), "map ")
		four := strings.HasSuffix(field, "ip saddr ") || strings.HasSuffix(field, "ip daddr ")
		six := strings.HasSuffix(field, "ip6 saddr ") || strings.HasSuffix(field, "ip6 daddr ")
		if !four && !six || strings.Count(elements, ",") < limit-1 {
			b.WriteString("{ ")
			text = after
			continue
		}
		set := namedSet{six, isMap, elements}
		n := slices.Index(out.sets, set)
		if n < 0 {
			n, out.sets = len(out.sets), append(out.sets, set)
		}
		b.WriteString("@" + setName(n))
		text = rest
	}
}

// String returns the table for nft.
func (a apart) String() string {
	head, rules, _ := strings.Cut(a.text, "\n")
	var b strings.Builder
	b.WriteString(head + "\n")
	for n, s := range a.sets {
		what, kind, flags := "set", "ipv4_addr", ""
		if s.six {
			kind = "ipv6_addr"
		}
		if s.isMap {
			what, kind = "map", kind+" : "+kind
		}
		if s.hasRanges() {
			flags = "flags interval; "
		}
		fmt.Fprintf(&b, "%s %s { type %s; %selements = { %s }; }\n", what, setName(n), kind, flags, s.elements)
	}
	return b.String() + rules
}

// putTogether returns a table that nft printed with its named sets in the rules.
func putTogether(listed string) string {
	var sets []string // references and the sets in their place
	declaration := regexp.MustCompile(`(?s)\t(?:set|map) large\d+ \{\n.*?\n\t\}\n\n?`)
	rules := declaration.ReplaceAllStringFunc(listed, func(set string) string {
		_, elements, _ := strings.Cut(set, "elements = ")
		elements, _, _ = strings.Cut(elements, " }")
		for _, end := range []string{" ", "\n"} { // @large1 begins like @large10
			sets = append(sets, "@"+strings.Fields(set)[1]+end, strings.Join(strings.Fields(elements), " ")+" }"+end)
		}
		return ""
	})
	return strings.NewReplacer(sets...).Replace(rules)
}

// errOther is returned for a table that differs in more than a few elements.
var errOther = errors.New("the table differs in more than elements of sets")

// changeElements changes the sets of a table that is in the kernel to those of another.
func changeElements(old, new apart) error {
	if old.text != new.text || len(old.sets) != len(new.sets) || len(new.sets) == 0 {
		return errOther
	}
	var b nftBatch
	for n, s := range new.sets {
		before := old.sets[n]
		if before == s {
			continue
		}
		if before.six != s.six || before.isMap != s.isMap || before.hasRanges() != s.hasRanges() {
			return errOther
		}
		gone, come := plan.Differing(strings.Split(before.elements, ", "), strings.Split(s.elements, ", "))
		if len(gone)+len(come) > fewElements {
			return errOther
		}
		without := func(list, others []string) []string {
			return slices.DeleteFunc(slices.Clone(list), func(x string) bool { return slices.Contains(others, x) })
		}
		if err := b.elements(unix.NFT_MSG_DELSETELEM, 0, n, s, without(gone, come)); err != nil {
			return err
		}
		if err := b.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, n, s, without(come, gone)); err != nil {
			return err
		}
	}
	return b.send()
}

// elements adds a message that adds or deletes elements of the n-th set.
func (b *nftBatch) elements(kind, flags, n int, s namedSet, list []string) error {
	if len(list) == 0 {
		return nil
	}
	var all []*nl.RtAttr
	add := func(a netip.Addr, flags int, further ...*nl.RtAttr) {
		all = append(all, nest(unix.NFTA_LIST_ELEM, append(further, number(unix.NFTA_SET_ELEM_FLAGS, flags),
			data(unix.NFTA_SET_ELEM_KEY, a.AsSlice()))...))
	}
	for _, text := range list {
		key, value, _ := strings.Cut(text, " : ")
		first, last, err := ends(key)
		if err != nil {
			return err
		}
		if s.isMap {
			to, err := netip.ParseAddr(value)
			if err != nil {
				return err
			}
			add(first, 0, data(unix.NFTA_SET_ELEM_DATA, to.AsSlice()))
			continue
		}
		add(first, 0)
		if end := last.Next(); s.hasRanges() && end.IsValid() {
			add(end, unix.NFT_SET_ELEM_INTERVAL_END)
		}
	}
	b.acks++
	b.message(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_ACK|flags, unix.NFPROTO_INET, 0,
		text(unix.NFTA_SET_ELEM_LIST_TABLE, plan.NFTable), text(unix.NFTA_SET_ELEM_LIST_SET, setName(n)),
		nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS, all...))
	return nil
}

// ends returns the first and the last address of an element: an address, a prefix, or a range.
func ends(element string) (first, last netip.Addr, err error) {
	if p, err := netip.ParsePrefix(element); err == nil {
		return plan.First(p), plan.Last(p), nil
	}
	from, to, isRange := strings.Cut(element, "-")
	if !isRange {
		to = from
	}
	if first, err = netip.ParseAddr(from); err == nil {
		last, err = netip.ParseAddr(to)
	}
	return first, last, err
}
