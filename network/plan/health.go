// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// Health is what pings tell about a tunnel since the process started.
type Health struct {
	Started time.Time
	// Sent counts pings, Lost those without an answer since the last answer.
	Sent, Lost int
	// Answered is the time of the last answer; zero = none yet.
	Answered time.Time
	// Latency is the round trip, smoothed over about eight answers.
	Latency time.Duration
}

// Answer takes an answer into account.
func (h Health) Answer(now time.Time, latency time.Duration) Health {
	if h.Answered.IsZero() {
		h.Latency = latency
	}
	// 1/8 as in TCP's estimate of the round trip (RFC 6298).
	h.Latency += (latency - h.Latency) / 8
	h.Lost, h.Answered = 0, now
	return h
}

// PingPolicy says when a tunnel counts as lost.
type PingPolicy struct {
	Interval time.Duration
	// Threshold is how many pings in a row must be lost.
	Threshold int
}

// Connection decides the state of a tunnel from its last one.
//
//	no answer yet          an answer        threshold pings without one
//	Connecting ──────────▶ Connected ─────────────────▶ Error
//	                           ▲        an answer         │
//	                           └──────────────────────────┘
//
// A process that starts while the tunnel counts as connected leaves it so for as long as the
// threshold takes.
func (h Health) Connection(now time.Time, last netv1beta1.ConnectionStatusValue, policy PingPolicy) netv1beta1.ConnectionStatusValue {
	silent := h.Answered.IsZero()
	switch {
	case silent && (last == "" || last == netv1beta1.Connecting):
		return netv1beta1.Connecting
	case silent && now.Sub(h.Started) < time.Duration(policy.Threshold)*policy.Interval:
		return last
	case silent, h.Lost >= policy.Threshold:
		return netv1beta1.ConnectionError
	}
	return netv1beta1.Connected
}

// Numbers of the pings before the first answer.
const (
	// eagerInterval is between two of them, eagerPings how many there are: 20 s. Whoever peers
	// two clusters waits for the first answer.
	eagerInterval = 100 * time.Millisecond
	eagerPings    = 200
)

// PingAfter is the time between this ping and the next.
func (h Health) PingAfter(interval time.Duration) time.Duration {
	if h.Answered.IsZero() && h.Sent < eagerPings {
		return min(eagerInterval, interval)
	}
	return interval
}

// latencyNoise is a difference that says nothing: scheduling of the two processes.
const latencyNoise = 500 * time.Microsecond

// NotableLatency tells whether a latency is worth a write: the first one, or after the interval
// one that differs by more than a fifth from what was written.
func NotableLatency(now, written time.Time, old, new, interval time.Duration) bool {
	if written.IsZero() {
		return new > 0
	}
	return now.Sub(written) >= interval && (new-old).Abs() > max(old/5, latencyNoise)
}
