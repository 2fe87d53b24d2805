// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"net/netip"
	"testing"
	"time"
)

// TestUnaskedAnswersWakeNobody: the Connection is looked at for answers to pings that were sent, not for any that a
// peer makes up, nor for one that comes twice.
func TestUnaskedAnswersWakeNobody(t *testing.T) {
	t.Parallel()
	p := newPinger(Options{}, netip.Addr{}, netip.Addr{})
	asked := time.Now()
	p.ask(asked)
	<-p.changed
	for _, c := range []struct {
		claim string
		sent  time.Time
		wakes bool
	}{
		{"made up", asked.Add(time.Second), false}, {"asked for", asked, true}, {"the same again", asked, false},
	} {
		p.answered(c.sent, asked.Add(time.Millisecond))
		woken := false
		select {
		case <-p.changed:
			woken = true
		default:
		}
		if woken != c.wakes {
			t.Errorf("an answer %s: wakes %t, want %t", c.claim, woken, c.wakes)
		}
	}
}
