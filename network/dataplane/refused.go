// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"fmt"
	"time"

	"github.com/liqo-go/liqo/network/plan"
)

// tryAgain is how long something of a user that the kernel refused is left alone: a device that a
// route needs may come later.
const tryAgain = time.Minute

// refused are things of users that the kernel did not take, by the text of each. They are no
// reason to fail, so that a user's mistake does not keep us from ours, and count as found for a
// while, so that the same is not tried at each look.
type refused[T fmt.Stringer] map[string]refusal[T]

type refusal[T fmt.Stringer] struct {
	thing T
	err   error
	at    time.Time
}

// note takes the outcome of writing a thing.
func (r refused[T]) note(thing T, err error) {
	if err == nil {
		delete(r, thing.String())
		return
	}
	r[thing.String()] = refusal[T]{thing, err, time.Now()}
}

// pretend puts what was refused in the place of what is there.
func (r refused[T]) pretend(found []T, same func(a, b T) bool) []T {
	for text, x := range r {
		if time.Since(x.at) > tryAgain {
			delete(r, text)
			continue
		}
		kept := found[:0]
		for _, f := range found {
			if !same(f, x.thing) {
				kept = append(kept, f)
			}
		}
		found = append(kept, x.thing)
	}
	return found
}

// Refused tells what the kernel did not take of a user's content; empty when it took everything.
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

// pretend puts what was refused into what was observed.
func (d *Dataplane) pretend(s *plan.State) {
	s.Tables = d.refusedTables.pretend(s.Tables, func(a, b plan.Table) bool { return a.Family == b.Family && a.Name == b.Name })
	s.Routes = d.refusedRoutes.pretend(s.Routes, func(a, b plan.Route) bool { return a.Table == b.Table && a.To == b.To })
	s.Rules = d.refusedRules.pretend(s.Rules, func(a, b plan.Rule) bool { return a == b })
}
