// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Change is one thing that differs: Old nil = it must be made, New nil = it must go,
// both = it must become New.
type Change[T item] struct{ Old, New *T }

// Changes lead from one State to another. The zero value changes nothing.
type Changes struct {
	Overlays  []Change[Overlay]
	Tunnels   []Change[Tunnel]
	Settings  []Change[Setting]
	Addresses []Change[Address]
	Forwards  []Change[Forward]
	Neighbors []Change[Neighbor]
	Peers     []Change[Peer]
	Routes    []Change[Route]
	Rules     []Change[Rule]
	// Table is nil when the nft table stays; it is replaced as a whole, in one transaction.
	Table *TableChange
	// Tables are those of users, each replaced as a whole.
	Tables []Change[Table]
	// Quotes is nil when these rules stay; they are replaced as a whole.
	Quotes *QuotesChange
}

// QuotesChange replaces the rules for quoted addresses.
type QuotesChange struct{ Old, New []Quote }

// TableChange replaces the nft table; an empty New removes it.
type TableChange struct {
	Old, New string
	// Exposure is that of New.
	Exposure Exposure
}

// Diff tells what to do to have what is wanted. What want leaves open (a port, an endpoint to be
// learnt) is taken as it is.
func Diff(have, want State) Changes {
	c := Changes{
		Overlays:  diff(have.Overlays, want.Overlays),
		Tunnels:   diff(have.Tunnels, settledTunnels(have.Tunnels, want.Tunnels)),
		Settings:  kept(diff(have.Settings, want.Settings)),
		Addresses: diff(have.Addresses, want.Addresses),
		Forwards:  diff(have.Forwards, want.Forwards),
		Neighbors: diff(have.Neighbors, want.Neighbors),
		Peers:     diff(have.Peers, settledPeers(have.Peers, want.Peers)),
		Routes:    diff(have.Routes, settledRoutes(have.Routes, want.Routes)),
		Rules:     diff(have.Rules, want.Rules),
		Tables:    diff(have.Tables, want.Tables),
	}
	if have.Table != want.Table {
		c.Table = &TableChange{Old: have.Table, New: want.Table, Exposure: want.Exposure}
	}
	if len(diff(have.Quotes, want.Quotes)) > 0 {
		c.Quotes = &QuotesChange{Old: have.Quotes, New: want.Quotes}
	}
	return c
}

// Empty reports whether nothing has to change.
func (c Changes) Empty() bool { return reflect.ValueOf(c).IsZero() }

// String prints one line per thing: "-" what goes, "+" what comes, both for what becomes another.
func (c Changes) String() string {
	var b strings.Builder
	show(&b, c.Overlays)
	show(&b, c.Tunnels)
	show(&b, c.Settings)
	show(&b, c.Addresses)
	show(&b, c.Forwards)
	show(&b, c.Neighbors)
	show(&b, c.Peers)
	show(&b, c.Routes)
	show(&b, c.Rules)
	if c.Table != nil {
		showTable(&b, *c.Table)
	}
	if c.Quotes != nil {
		show(&b, diff(c.Quotes.Old, c.Quotes.New))
	}
	for _, t := range c.Tables {
		showTable(&b, TableChange{Old: textOf(t.Old), New: textOf(t.New)})
	}
	return b.String()
}

// diff matches things by key. What goes comes first, then the rest in the order of want.
func diff[T item](have, want []T) []Change[T] {
	var changes []Change[T]
	wanted := keyed(want)
	for i := range have {
		if _, ok := wanted[have[i].key()]; !ok {
			changes = append(changes, Change[T]{Old: &have[i]})
		}
	}
	found := keyed(have)
	for i := range want {
		old, ok := found[want[i].key()]
		switch {
		case !ok:
			changes = append(changes, Change[T]{New: &want[i]})
		case !reflect.DeepEqual(*old, want[i]):
			changes = append(changes, Change[T]{Old: old, New: &want[i]})
		}
	}
	return changes
}

func keyed[T item](list []T) map[any]*T {
	m := make(map[any]*T, len(list))
	for i := range list {
		m[list[i].key()] = &list[i]
	}
	return m
}

// kept drops removals.
func kept(changes []Change[Setting]) []Change[Setting] {
	var out []Change[Setting]
	for _, c := range changes {
		if c.New != nil {
			out = append(out, c)
		}
	}
	return out
}

// settledTunnels gives tunnels with any port the port they have, of the same transport.
func settledTunnels(have, want []Tunnel) []Tunnel {
	found := keyed(have)
	out := make([]Tunnel, len(want))
	for i, t := range want {
		if old, ok := found[t.key()]; ok && t.ListenPort == 0 && t.TCP == old.TCP {
			t.ListenPort = old.ListenPort
		}
		out[i] = t
	}
	return out
}

// settledRoutes gives routes that leave the device to the kernel the one it chose. Throw routes have none.
func settledRoutes(have, want []Route) []Route {
	if !slices.ContainsFunc(want, func(r Route) bool { return r.Device == "" }) {
		return want
	}
	found := keyed(have)
	out := make([]Route, len(want))
	for i, r := range want {
		if old, ok := found[r.key()]; ok && r.Device == "" && !r.Throw {
			r.Device = old.Device
		}
		out[i] = r
	}
	return out
}

// settledPeers gives peers without an endpoint the one that was learnt. A peer whose key was
// replaced is still at the same place, so it inherits the endpoint of the device's old peer:
// a server can then speak first.
func settledPeers(have, want []Peer) []Peer {
	learnt := map[string]Peer{}
	for _, p := range have {
		learnt[p.Device] = p
	}
	found := keyed(have)
	out := make([]Peer, len(want))
	for i, p := range want {
		if !p.Endpoint.IsValid() {
			if old, ok := found[p.key()]; ok {
				p.Endpoint = old.Endpoint
			} else {
				p.Endpoint = learnt[p.Device].Endpoint
			}
		}
		out[i] = p
	}
	return out
}

func show[T item](b *strings.Builder, changes []Change[T]) {
	for _, c := range changes {
		if c.Old != nil {
			fmt.Fprintf(b, "- %s\n", *c.Old)
		}
		if c.New != nil {
			fmt.Fprintf(b, "+ %s\n", *c.New)
		}
	}
}

func textOf(t *Table) string {
	if t == nil {
		return ""
	}
	return t.Text
}

// showTable prints the lines of the table that differ, in the order of the longest common part.
func showTable(b *strings.Builder, c TableChange) {
	old, new := strings.Split(c.Old, "\n"), strings.Split(c.New, "\n")
	common := commonLengths(old, new)
	i, j := 0, 0
	for i < len(old) || j < len(new) {
		switch {
		case i < len(old) && j < len(new) && old[i] == new[j]:
			i, j = i+1, j+1
		case j == len(new) || i < len(old) && common[i+1][j] >= common[i][j+1]:
			line(b, '-', old[i])
			i++
		default:
			line(b, '+', new[j])
			j++
		}
	}
}

func line(b *strings.Builder, sign byte, text string) {
	if text != "" {
		fmt.Fprintf(b, "%c %s\n", sign, text)
	}
}

// commonLengths holds at [i][j] the length of the longest common part of a[i:] and b[j:].
func commonLengths(a, b []string) [][]int {
	l := make([][]int, len(a)+1)
	for i := range l {
		l[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				l[i][j] = l[i+1][j+1] + 1
			} else {
				l[i][j] = max(l[i+1][j], l[i][j+1])
			}
		}
	}
	return l
}
