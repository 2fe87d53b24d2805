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

// Health is what pings tell about a tunnel since the process started.
type Health struct {
	Started time.Time
	// Renewed says that another peer, or the peer's other key, came in place of one before.
	Renewed bool
	// Keyless says that the peer's key is not known, any more or yet: nobody can answer.
	Keyless bool
	// Sent counts pings.
	Sent int
	// Open is when the first ping without an answer was sent; zero = all were answered.
	Open time.Time
	// Answered is the time of the last answer; zero = none yet.
	Answered time.Time
	// Latency is the round trip, smoothed over about eight answers.
	Latency time.Duration
}

// Answer takes an answer into account.
func (h Health) Answer(now time.Time, latency time.Duration) Health {
	if h.Latency == 0 {
		h.Latency = latency
	}
	// 1/8 as in TCP's estimate of the round trip (RFC 6298).
	h.Latency += (latency - h.Latency) / 8
	h.Open, h.Answered = time.Time{}, now
	return h
}

// shakenFor is how long after a handshake the answer to a ping would have come.
const shakenFor = 2 * time.Second

// Shaken takes a handshake for an answer when there was none: the peer's gateway may not answer pings at all. One
// from before this process says nothing of now.
func (h Health) Shaken(at, now time.Time) Health {
	if h.Answered.IsZero() && at.After(h.Started) && now.Sub(at) >= shakenFor {
		h.Open, h.Answered = time.Time{}, at
	}
	return h
}

// Asked takes a ping into account.
func (h Health) Asked(now time.Time) Health {
	h.Sent++
	if h.Open.IsZero() {
		h.Open = now
	}
	return h
}

// PingPolicy says when a tunnel counts as lost.
type PingPolicy struct {
	Interval time.Duration
	// Threshold is how many pings in a row must be lost, at that interval.
	Threshold int
	// Once means no pings after the first answer, and that no tunnel counts as lost.
	Once bool
}

// silence is how long a tunnel that counts as lost was silent.
func (p PingPolicy) silence() time.Duration { return time.Duration(p.Threshold) * p.Interval }

// Connection decides the state of a tunnel from its last one.
//
//	no answer yet          an answer        threshold pings without one
//	Connecting ──────────▶ Connected ─────────────────▶ Error
//	                           ▲        an answer         │
//	                           └──────────────────────────┘
//
// A process that starts while the tunnel counts as connected leaves it so for as long as the
// threshold takes. Whose key is taken away is Connecting at once.
func (h Health) Connection(now time.Time, last netv1beta1.ConnectionStatusValue, policy PingPolicy) netv1beta1.ConnectionStatusValue {
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

// Numbers of the pings beside the regular ones.
const (
	// eagerInterval is between two of them before the first answer, eagerPings how many there are:
	// 20 s. Whoever peers two clusters waits for the first answer.
	eagerInterval = 100 * time.Millisecond
	eagerPings    = 200
	// patience is the least time after which an answer is late. Two scheduled processes answer
	// within 50 ms; round trips on Earth take up to 300 ms, hence lateTrips.
	patience = 200 * time.Millisecond
	// lateTrips is how many round trips an answer that is late takes.
	lateTrips = 4
	// silentPings is the number of consecutive unanswered pings after which a client dials the server again. On
	// overloaded nodes answers took up to 0.8 s without any loss, and redialling drops packets in flight.
	silentPings = 3
	// urgentFor is how long late answers are asked for again with patience only.
	urgentFor = time.Minute
)

// Patience is the time after which an answer is late.
func (h Health) Patience() time.Duration { return max(patience, lateTrips*h.Latency) }

// Silent reports whether silentPings consecutive pings are unanswered, so the peer's gateway moved or ended.
func (h Health) Silent(now time.Time) bool {
	return h.Late(now) && now.Sub(h.Open) >= silentPings*patience
}

// Late reports whether an answer is overdue, so the ping is repeated.
func (h Health) Late(now time.Time) bool { return !h.Open.IsZero() && now.Sub(h.Open) >= h.Patience() }

// never is later than any process runs.
const never = time.Duration(math.MaxInt64)

// PingAfter is the time from the last ping to the next, as things are now: a late answer is asked
// for again soon.
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

// Notable tells whether a status is worth a write in place of an old one: at once where value, status or reason differ,
// and for anything else when the interval has passed since the last write. The peer has a say in messages, which
// name its MTU and where it calls from, and could have them written without end.
func Notable(old, new *netv1beta1.ConnectionStatus, since, interval time.Duration) bool {
	same := func(a, b metav1.Condition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
	}
	return since >= interval || old.Value != new.Value || !slices.EqualFunc(old.Conditions, new.Conditions, same)
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
