// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// Health holds the results of pings in a tunnel since the process started.
type Health struct {
	Started time.Time
	// Renewed reports whether the peer, or its key, replaced a former one.
	Renewed bool
	// Keyless reports whether the peer's key is not known, or no longer. No ping can be answered
	// then.
	Keyless bool
	// Sent counts pings.
	Sent int
	// Open is the time of the first ping without an answer; zero = all were answered.
	Open time.Time
	// Answered is the time of the last answer; zero = none yet.
	Answered time.Time
	// Latency is the round trip, smoothed over about eight answers.
	Latency time.Duration
}

// Answer records an answer.
func (h Health) Answer(now time.Time, latency time.Duration) Health {
	if h.Latency == 0 {
		h.Latency = latency
	}
	// 1/8 as in TCP's estimate of the round trip (RFC 6298).
	h.Latency += (latency - h.Latency) / 8
	h.Open, h.Answered = time.Time{}, now
	return h
}

// shakenFor is the time after a handshake within which a ping would have been answered.
const shakenFor = 2 * time.Second

// Shaken counts a handshake as an answer if there was none, because the peer's gateway may not
// answer pings at all. Handshakes from before this process started are ignored.
func (h Health) Shaken(at, now time.Time) Health {
	if h.Answered.IsZero() && at.After(h.Started) && now.Sub(at) >= shakenFor {
		h.Open, h.Answered = time.Time{}, at
	}
	return h
}

// Asked records a ping.
func (h Health) Asked(now time.Time) Health {
	h.Sent++
	if h.Open.IsZero() {
		h.Open = now
	}
	return h
}

// PingPolicy decides when a tunnel counts as lost.
type PingPolicy struct {
	Interval time.Duration
	// Threshold is the number of consecutive pings, sent at Interval, that must be lost.
	Threshold int
	// Once stops pings after the first answer; no tunnel counts as lost then.
	Once bool
}

// silence returns the time without an answer after which a tunnel counts as lost.
func (p PingPolicy) silence() time.Duration { return time.Duration(p.Threshold) * p.Interval }

// Connection returns the state of a tunnel, given its last one.
//
//	no answer yet          an answer        threshold pings without one
//	Connecting ──────────▶ Connected ─────────────────▶ Error
//	                           ▲        an answer         │
//	                           └──────────────────────────┘
//
// A process that starts while the tunnel counts as connected keeps that state until the threshold
// has passed. A peer without a key is Connecting at once.
func (h Health) Connection(now time.Time, last netv1beta1.ConnectionStatusValue, policy PingPolicy) (
	value netv1beta1.ConnectionStatusValue) {
	silent := h.Answered.IsZero()
	switch {
	case h.Keyless:
		return netv1beta1.Connecting
	case silent && (last == "" || last == netv1beta1.Connecting || policy.Once && h.Renewed):
		return netv1beta1.Connecting
	case silent && (policy.Once || now.Sub(h.Started) < policy.silence()):
		return last
	case policy.Once:
		return netv1beta1.Connected
	case silent, !h.Open.IsZero() && now.Sub(h.Open) >= policy.silence():
		return netv1beta1.ConnectionError
	}
	return netv1beta1.Connected
}

// These values apply to pings outside the regular interval.
const (
	// eagerInterval is the time between pings before the first answer, and eagerPings their number:
	// 20 s in total. A user who peers two clusters waits for the first answer.
	eagerInterval = 100 * time.Millisecond
	eagerPings    = 200
	// patience is the least time after which an answer is late. Two scheduled processes answer
	// within 50 ms. Round trips on Earth take up to 300 ms, so lateTrips applies too.
	patience = 200 * time.Millisecond
	// lateTrips is the number of round trips after which an answer is late.
	lateTrips = 4
	// silentPings is the number of consecutive unanswered pings after which a client dials the
	// server again. On overloaded nodes answers took up to 0.8 s without any loss, and redialling
	// drops packets in flight.
	silentPings = 3
	// urgentFor is how long a late answer causes pings at the interval of Patience.
	urgentFor = time.Minute
)

// Patience returns the time after which an answer is late.
func (h Health) Patience() time.Duration { return max(patience, lateTrips*h.Latency) }

// Silent reports whether silentPings consecutive pings are unanswered, so the peer's gateway moved
// or ended.
func (h Health) Silent(now time.Time) bool {
	return h.Late(now) && now.Sub(h.Open) >= silentPings*patience
}

// Late reports whether an answer is overdue, so the ping is repeated.
func (h Health) Late(now time.Time) bool { return !h.Open.IsZero() && now.Sub(h.Open) >= h.Patience() }

// never is longer than any process runs.
const never = time.Duration(math.MaxInt64)

// PingAfter returns the time from the last ping to the next. After a late answer the next ping
// follows soon.
func (h Health) PingAfter(now time.Time, policy PingPolicy) time.Duration {
	switch {
	case h.Answered.IsZero() && h.Sent < eagerPings:
		return min(eagerInterval, policy.Interval)
	case !h.Answered.IsZero() && !h.Open.IsZero() && now.Sub(h.Open) < urgentFor:
		return min(h.Patience(), policy.Interval)
	case policy.Once && !h.Answered.IsZero() && h.Open.IsZero():
		return never
	}
	return policy.Interval
}

// Notable reports whether a new status is written in place of an old one. It is written at once if
// value, status or reason differ, and after the interval for any other change. The peer influences
// messages, which name its MTU and source address, and could otherwise cause writes without end.
func Notable(old, new *netv1beta1.ConnectionStatus, since, interval time.Duration) bool {
	same := func(a, b metav1.Condition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
	}
	return since >= interval || old.Value != new.Value || !slices.EqualFunc(old.Conditions, new.Conditions, same)
}

// latencyNoise is the largest difference that may come from scheduling of the two processes alone.
const latencyNoise = 500 * time.Microsecond

// NotableLatency reports whether a latency is written. The first one is; later ones are after the
// interval, if they differ by more than a fifth from the written value.
func NotableLatency(now, written time.Time, old, new, interval time.Duration) bool {
	if written.IsZero() {
		return new > 0
	}
	return now.Sub(written) >= interval && (new-old).Abs() > max(old/5, latencyNoise)
}
