// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

func TestConnectionFollowsThePings(t *testing.T) {
	policy := PingPolicy{Interval: 2 * time.Second, Threshold: 5}
	start := time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)
	silent := Health{Started: start}
	answered := silent.Answer(start.Add(time.Second), time.Millisecond)
	lost := func(h Health, n int) Health { h.Lost = n; return h }
	for _, c := range []struct {
		claim  string
		health Health
		after  time.Duration
		last   netv1beta1.ConnectionStatusValue
		want   netv1beta1.ConnectionStatusValue
	}{
		{"nothing yet", silent, 0, "", netv1beta1.Connecting},
		{"nothing for an hour", silent, time.Hour, netv1beta1.Connecting, netv1beta1.Connecting},
		{"the first answer", answered, time.Second, netv1beta1.Connecting, netv1beta1.Connected},
		{"a few lost", lost(answered, 4), 9 * time.Second, netv1beta1.Connected, netv1beta1.Connected},
		{"too many lost", lost(answered, 5), 11 * time.Second, netv1beta1.Connected, netv1beta1.ConnectionError},
		{"back again", answered, 11 * time.Second, netv1beta1.ConnectionError, netv1beta1.Connected},
		{"a new process on a tunnel that works", silent, 9 * time.Second, netv1beta1.Connected, netv1beta1.Connected},
		{"a new process on a tunnel that is dead", silent, 10 * time.Second, netv1beta1.Connected, netv1beta1.ConnectionError},
		{"a new process on a tunnel that was dead", silent, 0, netv1beta1.ConnectionError, netv1beta1.ConnectionError},
	} {
		if got := c.health.Connection(start.Add(c.after), c.last, policy); got != c.want {
			t.Errorf("%s: %s, want %s", c.claim, got, c.want)
		}
	}
}
