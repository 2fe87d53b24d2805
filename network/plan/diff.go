// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Change is one item that differs. If Old is nil the item is created, if New is nil it is deleted,
// otherwise Old is replaced by New.
type Change[T item] struct{ Old, New *T }

// Changes are the steps from one State to another. The zero value changes nothing.
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
	// Table is nil if the nft table is unchanged; otherwise the whole table is replaced in one
	// transaction.
	Table *TableChange
	// Tables are the nft tables of users, each replaced as a whole.
	Tables []Change[Table]
	// Quotes is nil if these rules are unchanged; otherwise they are replaced as a whole.
	Quotes *QuotesChange
}

// QuotesChange replaces the rules for quoted addresses.
type QuotesChange struct{ Old, New []Quote }

// TableChange replaces the nft table; an empty New removes it.
type TableChange struct {
	Old, New string
	// Exposure is the Exposure of the table New.
	Exposure Exposure
}

// Diff returns the changes that turn the observed state into the desired one. Values that want
// leaves open (a port, an endpoint to be learnt) keep their observed value.
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

// String prints one line per item: "-" for a deleted item, "+" for a created one, both for a
// replaced one.
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

// diff matches items by key. Deletions come first, then the other changes in the order of want.
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

// kept filters out deletions.
func kept(changes []Change[Setting]) []Change[Setting] {
	var out []Change[Setting]
	for _, c := range changes {
		if c.New != nil {
			out = append(out, c)
		}
	}
	return out
}

// settledTunnels sets the observed port in tunnels that accept any port, if the transport is the
// same.
func settledTunnels(have, want []Tunnel) []Tunnel {
	return settled(have, want, func(t *Tunnel, old *Tunnel) {
		if old != nil && t.ListenPort == 0 && t.TCP == old.TCP {
			t.ListenPort = old.ListenPort
		}
	})
}

// settledRoutes sets the device that the kernel chose in routes that leave it open. Throw routes
// have no device.
func settledRoutes(have, want []Route) []Route {
	if !slices.ContainsFunc(want, func(r Route) bool { return r.Device == "" }) {
		return want
	}
	return settled(have, want, func(r *Route, old *Route) {
		if old != nil && r.Device == "" && !r.Throw {
			r.Device = old.Device
		}
	})
}

// settledPeers sets the learnt endpoint in peers without an endpoint. A peer with a replaced key is
// still at the same address, so it inherits the endpoint of the device's old peer. A server can
// then send first.
func settledPeers(have, want []Peer) []Peer {
	learnt := map[string]Peer{}
	for _, p := range have {
		learnt[p.Device] = p
	}
	return settled(have, want, func(p *Peer, old *Peer) {
		switch {
		case p.Endpoint.IsValid():
		case old != nil:
			p.Endpoint = old.Endpoint
		default:
			p.Endpoint = learnt[p.Device].Endpoint
		}
	})
}

// settled returns a copy of want after fill has completed each item from the observed one; old is nil
// if there is none.
func settled[T item](have, want []T, fill func(item, old *T)) []T {
	found, out := keyed(have), slices.Clone(want)
	for i := range out {
		fill(&out[i], found[out[i].key()])
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

// showTable prints the lines of the table that differ, ordered by the longest common subsequence.
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

// commonLengths returns at [i][j] the length of the longest common subsequence of a[i:] and b[j:].
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

// Differing returns two lists without their equal beginnings and ends.
func Differing[T comparable](a, b []T) ([]T, []T) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}
