// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"cmp"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Text for nft is written in the form in which nft prints it, so that the desired text can be
// compared with the kernel's. Sets are sorted, adjacent ranges joined, sets of one element written
// without braces, and masks of rewritten addresses have the bits of the prefix set.

// NFTable is the table with all rules of Liqo, in the family inet. Rules of users have tables of
// their own.
const NFTable = "liqo"

// chain is one chain of a table.
type chain struct {
	name string
	// base is the text after "type"; "" = other chains jump to this one.
	base  string
	drop  bool
	rules []string
}

// add appends rules.
func (c *chain) add(rules ...string) { c.rules = append(c.rules, rules...) }

// table prints Liqo's table; chains without rules are left out.
func table(chains ...chain) string {
	return printTable("inet", NFTable, slices.DeleteFunc(chains, func(c chain) bool { return len(c.rules) == 0 }))
}

// printTable prints a table.
func printTable(family, name string, chains []chain) string {
	var b strings.Builder
	fmt.Fprintf(&b, "table %s %s {\n", family, name)
	separator := ""
	for _, c := range chains {
		policy := "accept"
		if c.drop {
			policy = "drop"
		}
		fmt.Fprintf(&b, "%s\tchain %s {\n", separator, c.name)
		if c.base != "" {
			fmt.Fprintf(&b, "\t\ttype %s; policy %s;\n", c.base, policy)
		}
		for _, r := range c.rules {
			fmt.Fprintf(&b, "\t\t%s\n", r)
		}
		b.WriteString("\t}\n")
		separator = "\n"
	}
	b.WriteString("}\n")
	return b.String()
}

// family is one address family as nft names it.
type family struct {
	name string // of the header: ip or ip6
	meta string // of the protocol: ipv4 or ipv6
	six  bool
}

// families returns both families, IPv4 first.
func families() []family {
	return []family{{name: "ip", meta: "ipv4"}, {name: "ip6", meta: "ipv6", six: true}}
}

// of returns the prefixes of the family.
func (f family) of(list []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(list), func(p netip.Prefix) bool { return is6(p) != f.six })
}

// match returns an expression that compares a header field ("saddr", "daddr") with a set; ok is
// false if the set has no prefix of the family.
func (f family) match(field string, list []netip.Prefix) (text string, ok bool) {
	own := f.of(list)
	return fmt.Sprintf("%s %s %s", f.name, field, set(own)), len(own) > 0
}

// except returns an expression that excludes addresses, or "" if none is of the family.
func (f family) except(field string, list []netip.Addr) string {
	if text, ok := f.match(field+" !=", hosts(list)); ok {
		return text
	}
	return ""
}

// words joins the strings that are not empty.
func words(list ...string) string {
	return strings.Join(slices.DeleteFunc(list, func(w string) bool { return w == "" }), " ")
}

// rewrite returns a statement that replaces the prefix of an address and keeps its host bits. Both
// prefixes have the same length.
func (f family) rewrite(field string, to netip.Prefix) string {
	return fmt.Sprintf("%s %s set %s %s & %s | %s", f.name, field, f.name, field, Last(to), First(to))
}

// span is a range of addresses, both ends included.
type span struct{ from, to netip.Addr }

// set prints prefixes of one family.
func set(list []netip.Prefix) string {
	if slices.ContainsFunc(list, func(p netip.Prefix) bool { return !p.IsSingleIP() }) {
		return printed(spans(list))
	}
	return printed(addresses(list))
}

// printed prints a set.
func printed[T element](list []T) string {
	if len(list) == 1 {
		return commaSeparated(list)
	}
	return "{ " + commaSeparated(list) + " }"
}

// element is an element of a set or map.
type element interface{ AppendTo(text []byte) []byte }

// commaSeparated prints elements. It appends them to one text, because there may be thousands.
func commaSeparated[T element](list []T) string {
	text := make([]byte, 0, 32*len(list))
	for i, x := range list {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = x.AppendTo(text)
	}
	return string(text)
}

// quotedSet prints a set of names in the order of nft: as numbers with the most significant byte
// last.
func quotedSet(names []string) string {
	names = slices.SortedFunc(slices.Values(names), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), compareReversed(a, b))
	})
	words := make([]string, len(names))
	for i, n := range names {
		words[i] = strconv.Quote(n)
	}
	return braced(words)
}

// compareReversed compares two texts from their last bytes on.
func compareReversed(a, b string) int {
	x, y := []byte(a), []byte(b)
	slices.Reverse(x)
	slices.Reverse(y)
	return bytes.Compare(x, y)
}

func braced(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return "{ " + strings.Join(words, ", ") + " }"
}

// addresses returns the first addresses of prefixes, sorted, each once.
func addresses(list []netip.Prefix) []netip.Addr {
	out := make([]netip.Addr, len(list))
	for i, p := range list {
		out[i] = First(p)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// spans joins prefixes that are adjacent or overlap.
func spans(list []netip.Prefix) []span {
	all := make([]span, len(list))
	for i, p := range list {
		all[i] = span{First(p), Last(p)}
	}
	slices.SortFunc(all, func(a, b span) int { return a.from.Compare(b.from) })
	var out []span
	for _, s := range all {
		n := len(out)
		if n == 0 || out[n-1].to.Less(s.from) && s.from != out[n-1].to.Next() {
			out = append(out, s)
		} else if out[n-1].to.Less(s.to) {
			out[n-1].to = s.to
		}
	}
	return out
}

// AppendTo appends a span as a prefix if it is one, else as its two ends.
func (s span) AppendTo(text []byte) []byte {
	if s.from == s.to {
		return s.from.AppendTo(text)
	}
	if p := netip.PrefixFrom(s.from, commonBits(s.from, s.to)); First(p) == s.from && Last(p) == s.to {
		return p.AppendTo(text)
	}
	return s.to.AppendTo(append(s.from.AppendTo(text), '-'))
}

// commonBits returns the number of leading bits that two addresses of a family have in common.
func commonBits(a, b netip.Addr) (n int) {
	x, y := a.AsSlice(), b.AsSlice()
	for i := range x {
		same := bits.LeadingZeros8(x[i] ^ y[i])
		if n += same; same < 8 {
			break
		}
	}
	return n
}

// mapped is an element of a map of addresses.
type mapped struct{ key, value netip.Addr }

// AppendTo appends the element as nft prints it.
func (p mapped) AppendTo(text []byte) []byte {
	return p.value.AppendTo(append(p.key.AppendTo(text), " : "...))
}

// mapping prints a map of addresses. Of elements with the same key it prints the one with the lowest value.
func mapping(list []mapped) string {
	slices.SortFunc(list, func(a, b mapped) int { return cmp.Or(a.key.Compare(b.key), a.value.Compare(b.value)) })
	list = slices.CompactFunc(list, func(a, b mapped) bool { return a.key == b.key })
	return "{ " + commaSeparated(list) + " }"
}

func hosts(list []netip.Addr) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, a := range list {
		out[i] = host(a)
	}
	return out
}
