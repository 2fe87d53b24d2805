// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/liqo-go/liqo/network/dataplane"
)

// TestIdleTunnelsAreLookedAtSeldom: one that carries pings only is, until something passes.
func TestIdleTunnelsAreLookedAtSeldom(t *testing.T) {
	var h heard
	var carried dataplane.Traffic
	look := func(sent, received int64) time.Duration {
		carried.Sent, carried.Received = carried.Sent+sent, carried.Received+received
		h.listen(carried, time.Now())
		return h.nextLook()
	}
	look(1<<20, 1<<20)
	for range idleLooks - 1 {
		if got := look(250, 250); got != suspectEvery {
			t.Fatalf("just after traffic the next look is in %v", got)
		}
	}
	if got := look(250, 250); got != suspectIdle {
		t.Errorf("after a while without traffic the next look is in %v, want %v", got, suspectIdle)
	}
	if got := look(idleBytes, 0); got != suspectEvery {
		t.Errorf("with traffic again the next look is in %v, want %v", got, suspectEvery)
	}
	carried = dataplane.Traffic{}
	if got := look(0, 0); got != suspectEvery || h.idle != 0 {
		t.Errorf("with a new peer the next look is in %v, want %v", got, suspectEvery)
	}
}

// TestServersName: a name is asked for beside everything else, its address of the pod's family is taken,
// and it stays while it is one of the name's, or the DNS is silent.
func TestServersName(t *testing.T) {
	d := newDialer(Options{EndpointAddresses: []string{"gw.example.org"}, EndpointPort: 51840, DNSCheckInterval: time.Hour})
	answers, changed := make(chan []netip.Addr), make(chan struct{}, 1)
	d.lookup = func(ctx context.Context, _ string) ([]netip.Addr, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case addrs := <-answers:
			if addrs == nil {
				return nil, errors.New("no such host")
			}
			return addrs, nil
		}
	}
	go d.resolve(t.Context(), func() bool { return false }, func() { changed <- struct{}{} })
	if at := d.endpoint(); at.IsValid() {
		t.Errorf("before an answer it is %s", at)
	}
	addrs := func(list ...string) (out []netip.Addr) {
		for _, a := range list {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	answer := func(addrs []netip.Addr) {
		notify(d.again)
		answers <- addrs
	}
	for _, c := range []struct {
		answer []netip.Addr
		want   string // "" = as before
	}{
		{addrs("2001:db8::1", "192.0.2.1", "192.0.2.2"), "192.0.2.1:51840"},
		{addrs("192.0.2.2", "::ffff:192.0.2.1"), ""},
		{nil, ""},
		{addrs("2001:db8::1"), "[2001:db8::1]:51840"},
	} {
		before := d.endpoint()
		answer(c.answer)
		if c.want == "" {
			answer(nil) // the one before was taken into account
			if at := d.endpoint(); at != before {
				t.Errorf("after %s it is %s", c.answer, at)
			}
			continue
		}
		<-changed
		if at := d.endpoint().String(); at != c.want {
			t.Errorf("after %s it is %s, want %s", c.answer, at, c.want)
		}
	}
}
