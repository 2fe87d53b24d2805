// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/liqo-go/liqo/network/daemon"
	"github.com/liqo-go/liqo/network/gateway/plan"
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
	carried = kernel.Traffic{}
	if got := during(0, 200*time.Millisecond); got != suspectEvery {
		t.Errorf("with another peer the next look is in %v, want %v", got, suspectEvery)
	}
}

// TestServersName: a name is asked for beside everything else, its address of the pod's family is taken,
// and it stays while it is one of the name's, or the DNS is silent.
func TestServersName(t *testing.T) {
	t.Parallel()
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

// TestRedialDue: who was never answered asks anew soon once and then every second, who was asks as soon as three
// pings in a row are not answered, both seldom after a minute; who is called comes at once.
func TestRedialDue(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	now := time.Now()
	policy := plan.PingPolicy{Interval: 2 * time.Second, Threshold: 5}
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
		h := plan.Health{Started: ago(c.started), Answered: ago(c.answered), Open: ago(c.open), Latency: c.latency}
		if wait, due := redialDue(now, c.asked, false, h, policy); wait != c.wait || due != c.due {
			t.Errorf("%s: due %t, %v after the last; want %t, %v", c.claim, due, wait, c.due, c.wait)
		}
	}
	for _, c := range []struct {
		open time.Duration
		due  bool
	}{{199, false}, {200, true}} {
		h := plan.Health{Started: ago(60000), Answered: ago(1000), Open: ago(c.open)}
		if wait, due := redialDue(now, false, true, h, policy); wait != 200*ms || due != c.due {
			t.Errorf("tried since the last answer, and none for %v ms: due %t, %v after the last", int64(c.open), due, wait)
		}
	}
	once := policy
	once.Once = true
	if wait, due := redialDue(now, false, true, plan.Health{Started: ago(3000), Open: ago(3000)}, once); !due || wait <= 2*time.Second {
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
		d := newDialer(Options{EndpointAddresses: c.hosts, EndpointPort: 51840})
		shown := ""
		for i, want := range c.want {
			if i > 0 {
				d.next()
			}
			d.take("gw.example.org", addrs, c.six)
			if at := d.endpoint().Addr().String(); at != want {
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
	policy := plan.PingPolicy{Interval: 2 * time.Second, Threshold: 5}
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	health := func(silent time.Duration) plan.Health {
		h := plan.Health{Started: ago(time.Hour)}.Answer(ago(silent), time.Millisecond)
		if silent > 0 {
			h = h.Asked(ago(silent))
		}
		return h
	}
	never, good := plan.Health{Started: ago(time.Hour), Open: ago(time.Hour)}, health(0)
	quiet := heard{at: ago(time.Second), dialled: ago(time.Second)}
	for _, c := range []struct {
		claim        string
		asked        bool
		tunnels      []heard
		health       []plan.Health
		all          time.Duration // since the last time
		due          []int
		lookup, next bool
	}{
		{"all answer", false, []heard{quiet, quiet}, []plan.Health{good, good}, time.Hour, nil, false, false},
		{"the first is silent", false, []heard{quiet, quiet}, []plan.Health{health(time.Second), good}, time.Hour, []int{0}, false, false},
		{"the second is silent", false, []heard{quiet, quiet}, []plan.Health{good, health(time.Second)}, time.Hour, []int{1}, false, false},
		{"the first is silent, and was tried just now", false, []heard{{at: ago(time.Second), dialled: now}, quiet}, []plan.Health{health(time.Second), good}, time.Hour, nil, false, false},
		{"the first does not answer, but brings something", false, []heard{{at: now}, quiet}, []plan.Health{health(time.Second), good}, time.Hour, nil, false, false},
		{"the first is silent for long, and the second now", false, []heard{{at: ago(time.Hour)}, quiet}, []plan.Health{health(time.Hour), health(time.Second)}, time.Hour, []int{0, 1}, true, false},
		{"all are silent", false, []heard{quiet, quiet}, []plan.Health{health(time.Second), health(time.Second)}, time.Hour, []int{0, 1}, true, false},
		{"all are silent, and were tried", false, []heard{quiet, quiet}, []plan.Health{health(time.Second), health(time.Second)}, 500 * time.Millisecond, []int{0, 1}, true, true},
		{"all are silent, and were tried just now", false, []heard{quiet, quiet}, []plan.Health{health(time.Second), health(time.Second)}, 0, nil, false, false},
		{"none answers, but one brings something", false, []heard{quiet, {at: now}}, []plan.Health{health(time.Second), health(time.Second)}, time.Hour, []int{0}, true, false},
		{"the server asks", true, []heard{quiet, quiet}, []plan.Health{good, good}, time.Hour, []int{0, 1}, false, false},
		{"the second never answered, but has a handshake", false, []heard{quiet, {Traffic: kernel.Traffic{Handshake: ago(time.Minute)}}}, []plan.Health{good, never}, time.Hour, nil, false, false},
		{"and the first is silent", false, []heard{quiet, {Traffic: kernel.Traffic{Handshake: ago(time.Minute)}}}, []plan.Health{health(time.Second), never}, time.Hour, []int{0, 1}, true, false},
	} {
		a := attempts{tunnels: c.tunnels, all: ago(c.all)}
		if due, lookup, next := a.due(now, c.asked, c.health, policy); !slices.Equal(due, c.due) || lookup != c.lookup || next != c.next {
			t.Errorf("%s: tunnels %v, DNS %t, next %t; want %v, %t, %t", c.claim, due, lookup, next, c.due, c.lookup, c.next)
		}
	}
}

// TestOnlyThePodWithTheTunnelSpeaks: of two pods of one gateway, as while its Deployment rolls, the other is silent.
func TestOnlyThePodWithTheTunnelSpeaks(t *testing.T) {
	t.Parallel()
	client, err := daemon.Connect(&rest.Config{Host: "https://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{Options: Options{Name: "peer", Namespace: "tenant", PodName: "a"}, client: client}
	g.take(t.Context(), true)
	silent := g.contents().Silent
	for _, leads := range []bool{false, true} {
		if g.leads.Store(leads); silent() == leads {
			t.Errorf("a pod that has the tunnel: %t; silent %t", leads, silent())
		}
	}
}
