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
)

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
