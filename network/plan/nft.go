// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
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
	var words []string
	if slices.ContainsFunc(list, func(p netip.Prefix) bool { return !p.IsSingleIP() }) {
		for _, s := range spans(list) {
			words = append(words, s.String())
		}
	} else {
		for _, a := range addresses(list) {
			words = append(words, a.String())
		}
	}
	return braced(words)
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

// String prints a span as a prefix if it is one, else as its two ends.
func (s span) String() string {
	if s.from == s.to {
		return s.from.String()
	}
	for bits := s.from.BitLen() - 1; bits >= 0; bits-- { // most are small
		if p := netip.PrefixFrom(s.from, bits); First(p) == s.from && Last(p) == s.to {
			return p.String()
		}
	}
	return s.from.String() + "-" + s.to.String()
}

// mapping prints a map of addresses.
func mapping(m map[netip.Addr]netip.Addr) string {
	var words []string
	for _, k := range slices.SortedFunc(maps.Keys(m), netip.Addr.Compare) {
		words = append(words, fmt.Sprintf("%s : %s", k, m[k]))
	}
	return "{ " + strings.Join(words, ", ") + " }"
}

func hosts(list []netip.Addr) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, a := range list {
		out[i] = host(a)
	}
	return out
}
