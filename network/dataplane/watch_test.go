// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/plan"
)

// TestOwnRoutesAreNoNews: Watch reports routes of our table that somebody else changes, and none that Apply changes.
func TestOwnRoutesAreNoNews(t *testing.T) {
	d, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ip := func(args string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	var reported, pods atomic.Int64
	go d.Watch(ctx, func() { reported.Add(1) }, func() { pods.Add(1) })
	space.Eventually(t, "a watch that listens", func() error {
		ip("route replace 10.97.0.1/32 dev lo")
		ip("route delete 10.97.0.1/32 dev lo")
		if pods.Load() == 0 {
			return errors.New("it has not reported a pod")
		}
		return nil
	})
	var old *plan.Route
	for i, cidr := range []string{"10.99.0.0/16", "fd00:99::/32"} {
		narrow := plan.Route{Device: "lo", To: netip.MustParsePrefix(cidr), MTU: 1300}
		wide := narrow
		wide.MTU = 1400
		for _, new := range []*plan.Route{&wide, &narrow, nil} {
			if err := d.Apply(ctx, plan.Changes{Routes: []plan.Change[plan.Route]{{Old: old, New: new}}}); err != nil {
				t.Fatal(err)
			}
			old = new
		}
		ip(fmt.Sprintf("route add %s dev lo table %d", cidr, plan.RouteTable))
		space.Eventually(t, "the route of somebody else", func() error {
			if n := reported.Load(); n <= int64(i) {
				return fmt.Errorf("%d reports", n)
			}
			return nil
		})
		if n := reported.Load(); n != int64(i+1) {
			t.Errorf("%s: %d reports", cidr, n)
		}
	}
	ip(fmt.Sprintf("route flush table %d", plan.RouteTable))
	ip(fmt.Sprintf("-6 route flush table %d", plan.RouteTable))
}
