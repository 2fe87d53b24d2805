// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

func TestConnectionFollowsThePings(t *testing.T) {
	policy := PingPolicy{Interval: 2 * time.Second, Threshold: 5}
	start := time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)
	silent := Health{Started: start}
	answered := silent.Answer(start.Add(time.Second), time.Millisecond)
	once := PingPolicy{Interval: 2 * time.Second, Threshold: 5, Once: true}
	open := func(h Health, after time.Duration) Health {
		return h.Asked(start.Add(after)).Asked(start.Add(after + time.Second))
	}
	for _, c := range []struct {
		claim  string
		health Health
		after  time.Duration
		last   netv1beta1.ConnectionStatusValue
		want   netv1beta1.ConnectionStatusValue
		policy PingPolicy
	}{
		{"nothing yet", silent, 0, "", netv1beta1.Connecting, policy},
		{"nothing for an hour", silent, time.Hour, netv1beta1.Connecting, netv1beta1.Connecting, policy},
		{"the first answer", answered, time.Second, netv1beta1.Connecting, netv1beta1.Connected, policy},
		{"a few lost", open(answered, time.Second), 10 * time.Second, netv1beta1.Connected, netv1beta1.Connected, policy},
		{"too many lost", open(answered, time.Second), 11 * time.Second, netv1beta1.Connected, netv1beta1.ConnectionError, policy},
		{"back again", answered, 11 * time.Second, netv1beta1.ConnectionError, netv1beta1.Connected, policy},
		{"a new process on a tunnel that works", silent, 9 * time.Second, netv1beta1.Connected, netv1beta1.Connected, policy},
		{"a new process on a tunnel that is dead", silent, 10 * time.Second, netv1beta1.Connected, netv1beta1.ConnectionError, policy},
		{"a new process on a tunnel that was dead", silent, 0, netv1beta1.ConnectionError, netv1beta1.ConnectionError, policy},
		{"the key is taken away", Health{Started: start, Renewed: true, Keyless: true}, 0, netv1beta1.Connected, netv1beta1.Connecting, policy},
		{"the key is taken away, and a last answer comes", Health{Started: start, Keyless: true}.Answer(start, time.Millisecond), 0, netv1beta1.Connected, netv1beta1.Connecting, policy},
		{"no pings: the key is taken away", Health{Started: start, Renewed: true, Keyless: true}, time.Hour, netv1beta1.Connected, netv1beta1.Connecting, once},
		{"no pings: nothing yet", silent, time.Hour, "", netv1beta1.Connecting, once},
		{"no pings: a handshake", silent.Shaken(start.Add(time.Second), start.Add(4*time.Second)), 0, netv1beta1.Connecting, netv1beta1.Connected, once},
		{"no pings: no handshake", silent.Shaken(time.Time{}, start.Add(4*time.Second)), 0, netv1beta1.Connecting, netv1beta1.Connecting, once},
		{"no pings: a handshake just now", silent.Shaken(start.Add(time.Second), start.Add(2*time.Second)), 0, netv1beta1.Connecting, netv1beta1.Connecting, once},
		{"no pings: a handshake of a former process", silent.Shaken(start.Add(-time.Second), start.Add(4*time.Second)), 0, netv1beta1.ConnectionError, netv1beta1.ConnectionError, once},
		{"no pings: another key of the peer", Health{Started: start, Renewed: true}, time.Hour, netv1beta1.Connected, netv1beta1.Connecting, once},
		{"no pings: one more was lost", open(answered, time.Second), time.Hour, netv1beta1.Connected, netv1beta1.Connected, once},
		{"no pings: a new process on a tunnel that worked", silent, time.Hour, netv1beta1.Connected, netv1beta1.Connected, once},
	} {
		if got := c.health.Connection(start.Add(c.after), c.last, c.policy); got != c.want {
			t.Errorf("%s: %s, want %s", c.claim, got, c.want)
		}
	}
}

// TestLateAnswersAreAskedForAgain: soon after a ping that is not answered comes another, after one
// that is the next regular one.
func TestLateAnswersAreAskedForAgain(t *testing.T) {
	const interval = 2 * time.Second
	start := time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)
	near := Health{Started: start}.Answer(start, time.Millisecond)
	far := Health{Started: start}.Answer(start, 300*time.Millisecond)
	for _, c := range []struct {
		claim  string
		health Health
		after  time.Duration
		want   time.Duration
		late   bool
		once   bool
	}{
		{"no answer ever", Health{Started: start}.Asked(start), 0, eagerInterval, false, false},
		{"all answered", near, time.Second, interval, false, false},
		{"one just sent", near.Asked(start), 0, patience, false, false},
		{"one not answered", near.Asked(start), patience, patience, true, false},
		{"one to a peer far away", far.Asked(start), time.Second, 1200 * time.Millisecond, false, false},
		{"silence for long", near.Asked(start), urgentFor, interval, true, false},
		{"no pings: no answer yet", Health{Started: start, Sent: eagerPings}.Asked(start), time.Second, interval, true, true},
		{"no pings: answered", near, time.Hour, never, false, true},
		{"no pings: a handshake", Health{Started: start}.Asked(start).Shaken(start.Add(1), start.Add(time.Minute)), time.Hour, never, false, true},
		{"no pings: one was asked for and not answered", near.Asked(start), patience, patience, true, true},
	} {
		now := start.Add(c.after)
		if got, late := c.health.PingAfter(now, PingPolicy{Interval: interval, Once: c.once}), c.health.Late(now); got != c.want || late != c.late {
			t.Errorf("%s: next after %v, late %t; want %v, %t", c.claim, got, late, c.want, c.late)
		}
	}
}

// TestNotable: what users act on is written at once, what a peer can change as it likes once in the interval.
func TestNotable(t *testing.T) {
	const interval = 10 * time.Second
	status := func(value netv1beta1.ConnectionStatusValue, conditions ...metav1.Condition) *netv1beta1.ConnectionStatus {
		return &netv1beta1.ConnectionStatus{Value: value, Conditions: conditions}
	}
	ready := metav1.Condition{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Connected"}
	differ := metav1.Condition{Type: "MTUFits", Status: metav1.ConditionFalse, Reason: ReasonMTUsDiffer, Message: "1340 here and 1200 at the peer"}
	narrow, other := differ, differ
	narrow.Reason, other.Message = ReasonMTUTooLarge, "1340 here and 1201 at the peer"
	old := status(netv1beta1.Connected, ready, differ)
	for _, c := range []struct {
		claim string
		new   *netv1beta1.ConnectionStatus
		since time.Duration
		want  bool
	}{
		{"another value", status(netv1beta1.ConnectionError, ready, differ), 0, true},
		{"another reason", status(netv1beta1.Connected, ready, narrow), 0, true},
		{"a condition less", status(netv1beta1.Connected, ready), 0, true},
		{"another message", status(netv1beta1.Connected, ready, other), interval - 1, false},
		{"another message after a while", status(netv1beta1.Connected, ready, other), interval, true},
	} {
		if got := Notable(old, c.new, c.since, interval); got != c.want {
			t.Errorf("%s: %t, want %t", c.claim, got, c.want)
		}
	}
}
