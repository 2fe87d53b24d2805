// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"fmt"
	"slices"
	"time"

	"github.com/liqo-go/liqo/network/plan"
)

// retryRefusedAfter is how long refused content of a user is not written again. It is retried because
// a device that a route needs may appear later.
const retryRefusedAfter = time.Minute

// refused holds content of users that the kernel refused, by its text. Such content causes no error,
// so a user's mistake does not block our own changes. It counts as observed for retryRefusedAfter,
// so it is not written on every reconcile.
type refused[T fmt.Stringer] map[string]refusal[T]

type refusal[T fmt.Stringer] struct {
	thing T
	err   error
	at    time.Time
}

// record stores the result of writing a thing; nil removes it.
func (r refused[T]) record(thing T, err error) {
	if err == nil {
		delete(r, thing.String())
		return
	}
	r[thing.String()] = refusal[T]{thing, err, time.Now()}
}

// hide replaces observed things with refused ones that are the same to same.
func (r refused[T]) hide(found []T, same func(a, b T) bool) []T {
	for text, x := range r {
		if time.Since(x.at) > retryRefusedAfter {
			delete(r, text)
			continue
		}
		found = append(slices.DeleteFunc(found, func(f T) bool { return same(f, x.thing) }), x.thing)
	}
	return found
}

// Refused returns one message for each part of a user's content that the kernel refused.
func (d *Dataplane) Refused(c plan.Content) []string {
	var out []string
	for _, t := range c.Tables {
		if x, ok := d.refusedTables[t.String()]; ok {
			out = append(out, x.err.Error())
		}
	}
	for _, r := range c.Routes {
		if x, ok := d.refusedRoutes[r.String()]; ok {
			out = append(out, fmt.Sprintf("%s: %v", r, x.err))
		}
	}
	for _, r := range c.Rules {
		if x, ok := d.refusedRules[r.String()]; ok {
			out = append(out, fmt.Sprintf("%s: %v", r, x.err))
		}
	}
	return out
}

// hideRefused makes refused content count as observed.
func (d *Dataplane) hideRefused(s *plan.State) {
	sameName := func(a, b plan.Table) bool { return a.Family == b.Family && a.Name == b.Name }
	sameTarget := func(a, b plan.Route) bool { return a.Table == b.Table && a.To == b.To }
	s.Tables = d.refusedTables.hide(s.Tables, sameName)
	s.Routes = d.refusedRoutes.hide(s.Routes, sameTarget)
	s.Rules = d.refusedRules.hide(s.Rules, func(a, b plan.Rule) bool { return a == b })
}
