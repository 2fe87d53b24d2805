// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	kernel "github.com/liqo-go/liqo/network/plan"
)

// TestIdleTunnelsAreLookedAtSeldom: one that carries pings only is, until something passes.
func TestIdleTunnelsAreLookedAtSeldom(t *testing.T) {
	t.Parallel()
	var h heard
	var carried kernel.Traffic
	now := time.Now()
	// during is the time until the next look once so many bytes a second have passed each way for a while.
	during := func(rate int64, while time.Duration) time.Duration {
		for end := now.Add(while); now.Before(end); {
			wait := h.every()
			now = now.Add(wait)
			carried.Sent += rate * wait.Milliseconds() / 1000
			carried.Received += rate * wait.Milliseconds() / 1000
			h.listen(carried, now)
		}
		return h.every()
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
	carried = kernel.Traffic{}
	if got := during(0, 200*time.Millisecond); got != suspectEvery {
		t.Errorf("with another peer the next look is in %v, want %v", got, suspectEvery)
	}
}

// TestServersName: an address of the pod's family is taken from the DNS, and it stays while it is one of the name's,
// or the DNS is silent; only one question is open at a time.
func TestServersName(t *testing.T) {
	t.Parallel()
	in := Sight{Options: Options{
		EndpointAddresses: []string{"gw.example.org"}, EndpointPort: 51840, DNSCheckInterval: time.Hour,
		Ping: PingPolicy{Interval: 2 * time.Second, Threshold: 5},
	}, Own: netip.MustParseAddr("10.0.0.1")}
	now, state := time.Now(), State{}
	// asked reports whether the DNS is asked after d and news.
	asked := func(d time.Duration, news News) bool {
		now, in.News = now.Add(d), news
		decision := Gateway(in, state, now)
		state = decision.State
		return slices.ContainsFunc(decision.Actions, func(a Action) bool { return a == LookUp{"gw.example.org"} })
	}
	if !asked(0, News{}) || asked(time.Minute, News{}) || state.Dial.endpoint(51840).IsValid() {
		t.Fatal("a name is not asked for once")
	}
	addrs := func(list ...string) (out []netip.Addr) {
		for _, a := range list {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	for _, c := range []struct {
		answer []netip.Addr
		wait   time.Duration
		want   string
	}{
		{addrs("2001:db8::1", "192.0.2.1", "192.0.2.2"), time.Hour, "192.0.2.1:51840"},
		{addrs("192.0.2.2", "::ffff:192.0.2.1"), time.Hour, "192.0.2.1:51840"},
		{nil, redialLate, "192.0.2.1:51840"},
		{addrs("2001:db8::1"), time.Hour, "[2001:db8::1]:51840"},
	} {
		if asked(0, News{Resolved: &Resolved{Host: "gw.example.org", Found: c.answer}}) || asked(c.wait-1, News{}) {
			t.Errorf("the DNS is asked again at once after %s", c.answer)
		}
		if at := state.Dial.endpoint(51840).String(); at != c.want {
			t.Errorf("after %s it is %s, want %s", c.answer, at, c.want)
		}
		if !asked(1, News{}) {
			t.Errorf("the DNS is not asked again %v after %s", c.wait, c.answer)
		}
	}
}

// TestCountersOfBeforeARedialAreIgnored: those that were being read while tunnels were dialled say nothing about what
// came since.
func TestCountersOfBeforeARedialAreIgnored(t *testing.T) {
	t.Parallel()
	g := simulate(t, false, 1)
	g.decide(g.now)
	const much = 1 << 20
	g.in.Moved = true
	if g.decide(g.now.Add(time.Millisecond)); !slices.Contains(g.done, "Redial") {
		t.Fatalf("a client that is asked to dial does %s", g.done)
	}
	for _, c := range []struct {
		claim    string
		received int64
		heard    bool
	}{{"of before", much, false}, {"of after", 100, true}} {
		clear(g.running)
		g.in.Counters = &Counters{Traffic: []kernel.Traffic{{Received: c.received, Sent: 100}}}
		if g.decide(g.now.Add(suspectEvery)); g.state.Tunnels[0].At.IsZero() == c.heard {
			t.Errorf("counters %s: something was heard %t", c.claim, !c.heard)
		}
	}
}

// TestRedialDue: who was never answered asks anew soon once and then every second, who was asks as soon as three
// pings in a row are not answered, both seldom after a minute; who is called comes at once.
func TestRedialDue(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	now := time.Now()
	policy := PingPolicy{Interval: 2 * time.Second, Threshold: 5}
	// ago says when, in ms before now; -1 is never.
	ago := func(n time.Duration) time.Time {
		if n < 0 {
			return time.Time{}
		}
		return now.Add(-n * ms)
	}
	for _, c := range []struct {
		claim                   string
		asked                   bool
		started, answered, open time.Duration
		latency                 time.Duration
		wait                    time.Duration
		due                     bool
	}{
		{"just begun", false, 299, -1, 299, 0, redialEager, false},
		{"first", false, 300, -1, 300, 0, redialEager, true},
		{"a minute without an answer", false, 60000, -1, 60000, 0, redialLate, true},
		{"answered", false, 60000, 1, -1, 0, 200 * ms, false},
		{"an answer is late", false, 60000, 200, 200, 0, 200 * ms, false},
		{"two answers are late", false, 60000, 599, 599, 0, 200 * ms, false},
		{"three answers are late", false, 60000, 600, 600, 0, 200 * ms, true},
		{"an answer on a long way", false, 60000, 999, 999, 250 * ms, 1000 * ms, false},
		{"an answer late on a long way", false, 60000, 1000, 1000, 250 * ms, 1000 * ms, true},
		{"silent for a minute", false, 90000, 60000, 60000, 0, redialLate, true},
		{"silent for a minute, and called", true, 90000, 60000, 60000, 0, moveEvery, true},
		{"called before anything was heard", true, 1, -1, -1, 0, moveEvery, true},
	} {
		h := Health{Started: ago(c.started), Answered: ago(c.answered), Open: ago(c.open), Latency: c.latency}
		if wait, due := redialDue(now, c.asked, false, h, policy); wait != c.wait || due != c.due {
			t.Errorf("%s: due %t, %v after the last; want %t, %v", c.claim, due, wait, c.due, c.wait)
		}
	}
	for _, c := range []struct {
		open time.Duration
		due  bool
	}{{199, false}, {200, true}} {
		h := Health{Started: ago(60000), Answered: ago(1000), Open: ago(c.open)}
		if wait, due := redialDue(now, false, true, h, policy); wait != 200*ms || due != c.due {
			t.Errorf("tried since the last answer, and none for %v ms: due %t, %v after the last", int64(c.open), due, wait)
		}
	}
	once := policy
	once.Once = true
	if wait, due := redialDue(now, false, true, Health{Started: ago(3000), Open: ago(3000)}, once); !due || wait <= 2*time.Second {
		t.Errorf("without pings: due %t, %v after the last, in which no handshake gets old enough to count", due, wait)
	}
}

// TestNextAddress: who is not answered goes on to each address of a name, and then to the next host; what the DNS
// says meanwhile does not lead back.
func TestNextAddress(t *testing.T) {
	t.Parallel()
	addrs := []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.0.2.1")}
	for _, c := range []struct {
		claim string
		hosts []string
		six   bool
		want  []string
	}{
		{"a name", []string{"gw.example.org"}, false, []string{"192.0.2.2", "192.0.2.1", "192.0.2.2"}},
		{"a name with one of the pod's family", []string{"gw.example.org"}, true, []string{"2001:db8::1", "2001:db8::1"}},
		{"a name and an address", []string{"gw.example.org", "203.0.113.1"}, false, []string{"192.0.2.2", "203.0.113.1", "192.0.2.1", "192.0.2.2", "203.0.113.1"}},
		{"an address", []string{"203.0.113.1"}, false, []string{"203.0.113.1", "203.0.113.1"}},
	} {
		d := newDial(c.hosts)
		shown := ""
		for i, want := range c.want {
			if i > 0 {
				d.next()
			}
			if d.Hosts[d.InUse] == "gw.example.org" {
				d.choose(addrs, c.six)
			}
			if at := d.endpoint(51840).Addr().String(); at != want {
				t.Errorf("%s, attempt %d: it is %s, want %s", c.claim, i+1, at, want)
			}
			if now := fmt.Sprint(d.addresses()); shown != "" && now != shown {
				t.Errorf("%s, attempt %d: shown as %s, before as %s", c.claim, i+1, now, shown)
			} else {
				shown = now
			}
		}
	}
}

// TestOnlySilentTunnelsBeginAnew: a tunnel that answers is left alone, also where the first one does not; all
// begin anew, and the next address is tried, when none answers or the server asks.
func TestOnlySilentTunnelsBeginAnew(t *testing.T) {
	t.Parallel()
	now := time.Now()
	policy := PingPolicy{Interval: 2 * time.Second, Threshold: 5}
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	health := func(silent time.Duration) Health {
		h := Health{Started: ago(time.Hour)}.Answer(ago(silent), time.Millisecond)
		if silent > 0 {
			h = h.Asked(ago(silent))
		}
		return h
	}
	never, good := Health{Started: ago(time.Hour), Open: ago(time.Hour)}, health(0)
	quiet := heard{At: ago(time.Second), Dialled: ago(time.Second)}
	for _, c := range []struct {
		claim        string
		asked        bool
		tunnels      []heard
		health       []Health
		all          time.Duration // since the last time
		due          []int
		lookup, next bool
	}{
		{"all answer", false, []heard{quiet, quiet}, []Health{good, good}, time.Hour, nil, false, false},
		{"the first is silent", false, []heard{quiet, quiet}, []Health{health(time.Second), good}, time.Hour, []int{0}, false, false},
		{"the second is silent", false, []heard{quiet, quiet}, []Health{good, health(time.Second)}, time.Hour, []int{1}, false, false},
		{"the first is silent, and was tried just now", false, []heard{{At: ago(time.Second), Dialled: now}, quiet}, []Health{health(time.Second), good}, time.Hour, nil, false, false},
		{"the first does not answer, but brings something", false, []heard{{At: now}, quiet}, []Health{health(time.Second), good}, time.Hour, nil, false, false},
		{"the first is silent for long, and the second now", false, []heard{{At: ago(time.Hour)}, quiet}, []Health{health(time.Hour), health(time.Second)}, time.Hour, []int{0, 1}, true, false},
		{"all are silent", false, []heard{quiet, quiet}, []Health{health(time.Second), health(time.Second)}, time.Hour, []int{0, 1}, true, false},
		{"all are silent, and were tried", false, []heard{quiet, quiet}, []Health{health(time.Second), health(time.Second)}, 500 * time.Millisecond, []int{0, 1}, true, true},
		{"all are silent, and were tried just now", false, []heard{quiet, quiet}, []Health{health(time.Second), health(time.Second)}, 0, nil, false, false},
		{"none answers, but one brings something", false, []heard{quiet, {At: now}}, []Health{health(time.Second), health(time.Second)}, time.Hour, []int{0}, true, false},
		{"the server asks", true, []heard{quiet, quiet}, []Health{good, good}, time.Hour, []int{0, 1}, false, false},
		{"the second never answered, but has a handshake", false, []heard{quiet, {Traffic: kernel.Traffic{Handshake: ago(time.Minute)}}}, []Health{good, never}, time.Hour, nil, false, false},
		{"and the first is silent", false, []heard{quiet, {Traffic: kernel.Traffic{Handshake: ago(time.Minute)}}}, []Health{health(time.Second), never}, time.Hour, []int{0, 1}, true, false},
	} {
		d := decider{now: now, in: Sight{Options: Options{Ping: policy}, News: News{Moved: c.asked}}}
		d.Dial.All = ago(c.all)
		for n, h := range c.health {
			d.Tunnels = append(d.Tunnels, Tunnel{Health: h, heard: c.tunnels[n]})
		}
		if due, lookup, next := d.Dial.due(&d); !slices.Equal(due, c.due) || lookup != c.lookup || next != c.next {
			t.Errorf("%s: tunnels %v, DNS %t, next %t; want %v, %t, %t", c.claim, due, lookup, next, c.due, c.lookup, c.next)
		}
	}
}

// TestOldAndNewFlowsTakeTurns: a client of a server at two addresses that is silent dials each of them anew, and between
// these attempts the one where it was heard, from the port it had then.
func TestOldAndNewFlowsTakeTurns(t *testing.T) {
	t.Parallel()
	now := time.Now()
	heardAt := netip.MustParseAddrPort("203.0.113.2:30742")
	d := decider{now: now, in: Sight{Options: Options{Ping: usual, EndpointPort: 51840}}}
	d.Peer, d.Holds, d.Dial = "key", true, newDial([]string{"203.0.113.1", "203.0.113.2"})
	d.Tunnels = []Tunnel{{
		Health: Health{Started: now.Add(-time.Hour)}.Answer(now, time.Millisecond).Asked(now),
		heard:  heard{From: heardAt, Port: 40000},
	}}
	var early, late []string
	for range 100 {
		d.now, d.Dial.Running, d.decision.Actions = d.now.Add(250*time.Millisecond), false, nil
		d.Dial.redial(&d, true)
		for _, a := range d.decision.Actions {
			attempt := a.(Redial).Dials[0]
			text := fmt.Sprintf("%d to %s", attempt.From, attempt.At.Addr())
			if d.now.Sub(now) < redialBack {
				early = append(early, text)
			} else {
				late = append(late, text)
			}
		}
	}
	if all := strings.Join(early, ", "); len(early) < 5 || strings.Contains(all, "40000") {
		t.Errorf("at first: %s", all)
	}
	cycle := strings.Join(late[:4], ", ")
	for _, want := range []string{"0 to 203.0.113.1", "0 to 203.0.113.2", "40000 to 203.0.113.2"} {
		if !strings.Contains(cycle, want) {
			t.Errorf("four attempts after %s: %s", redialBack, cycle)
		}
	}
}
