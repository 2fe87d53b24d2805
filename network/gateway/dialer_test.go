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
	now := time.Now()
	// during is the time until the next look once so many bytes a second have passed each way for a while.
	during := func(rate int64, while time.Duration) time.Duration {
		for end := now.Add(while); now.Before(end); {
			wait := h.nextLook()
			now = now.Add(wait)
			carried.Sent += rate * wait.Milliseconds() / 1000
			carried.Received += rate * wait.Milliseconds() / 1000
			h.listen(carried, now)
		}
		return h.nextLook()
	}
	for _, c := range []struct {
		what  string
		rate  int64
		while time.Duration
		want  time.Duration
	}{
		{"just after the start", 1 << 20, time.Second, suspectEvery},
		{"just after traffic", 200, time.Second, suspectEvery},
		{"a while after traffic", 200, 3 * time.Second, suspectIdle},
		{"with pings only", 900, time.Minute, suspectIdle},
		{"with little traffic", 1500, time.Minute, suspectEvery},
		{"with nothing", 0, time.Minute, suspectIdle},
		{"with much traffic", 1 << 20, time.Second, suspectEvery},
	} {
		if got := during(c.rate, c.while); got != c.want {
			t.Errorf("%s the next look is in %v, want %v", c.what, got, c.want)
		}
	}
	during(0, time.Minute)
	carried = dataplane.Traffic{}
	if got := during(0, 200*time.Millisecond); got != suspectEvery {
		t.Errorf("with another peer the next look is in %v, want %v", got, suspectEvery)
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
