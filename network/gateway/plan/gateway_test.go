// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/seed"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// simulated is one gateway with a clock, an API server and tunnels that are not real.
type simulated struct {
	t     *testing.T
	in    Sight
	state State
	now   time.Time
	wake  time.Time
	// done are the actions of the last decision, as text, but for counters and pings.
	done []string
	// send gets what is sent in a tunnel, and later what an action results in.
	send  func(Send)
	later func(func(*Sight))
	// relays reports that a relay is open.
	relays bool
	// running counts the unfinished actions of each kind.
	running map[string]int
}

var (
	here, there = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	usual       = PingPolicy{Interval: 2 * time.Second, Threshold: 5}
)

func simulate(t *testing.T, server bool, tunnels int) *simulated {
	o := Options{
		Name: "peer", Namespace: "tenant", RemoteClusterID: "far", Server: server, PingEnabled: true, Ping: usual,
		ListenPort: 51840, LatencyInterval: 10 * time.Second, DNSCheckInterval: time.Minute,
	}
	for n := 1; n < tunnels; n++ {
		o.MoreListenPorts, o.MoreEndpointPorts = append(o.MoreListenPorts, 51840+n), append(o.MoreEndpointPorts, 51840+n)
	}
	if !server {
		o.EndpointAddresses, o.EndpointPort = []string{"gw.example.org", "203.0.113.1"}, 51840
	}
	g := &simulated{
		t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), send: func(Send) {}, later: func(func(*Sight)) {}, running: map[string]int{},
		in: Sight{Options: o, Own: here, Objects: Objects{Complete: true, PeerKey: "key", GatewayIP: new(here.String())}},
	}
	return g
}

// decide decides at a time. A second decision on the same sight changes nothing.
func (g *simulated) decide(at time.Time) {
	g.t.Helper()
	g.now = at
	d := Gateway(g.in, g.state, at)
	g.in.News, g.done = News{}, nil
	again := Gateway(g.in, d.State, at)
	again.Actions = slices.DeleteFunc(again.Actions, func(a Action) bool { return a == End{} })
	if len(again.Actions) > 0 || again.Look || !reflect.DeepEqual(again.State, d.State) {
		g.t.Fatalf("%v: the same sight has actions %+v, look %t, and makes\n%+v of\n%+v", at, again.Actions, again.Look, again.State, d.State)
	}
	if !again.Wake.IsZero() && !again.Wake.After(at) {
		g.t.Fatalf("at %v the next decision is at %v", at, again.Wake)
	}
	g.state, g.wake = d.State, again.Wake
	for _, a := range d.Actions {
		g.act(a)
	}
}

func (g *simulated) act(action Action) {
	result := func(f func(*Sight)) {
		kind := fmt.Sprintf("%T", action)
		if g.running[kind]++; g.running[kind] > 1 {
			g.t.Fatalf("%d of %s run at once", g.running[kind], kind)
		}
		g.later(func(s *Sight) { g.running[kind]--; f(s) })
	}
	switch a := action.(type) {
	case Count:
		traffic := make([]kernel.Traffic, len(g.in.Devices()))
		result(func(s *Sight) { s.Counters = &Counters{Traffic: traffic, MTU: 1340} })
		return
	case Send:
		if g.send(a); a.Type == Ping {
			return
		}
	case Redial:
		result(func(s *Sight) { s.Redialled = true })
	case OpenRelay:
		if !g.relays {
			g.later(func(s *Sight) { s.Relays = &[]kernel.Relay{{Port: 51840, To: 4000}} })
		}
		g.relays = true
	case CloseRelay:
		g.relays = false
	case LookUp:
		result(func(s *Sight) { s.Resolved = &Resolved{Host: a.Host, Found: []netip.Addr{there}} })
	case Probe:
		result(func(s *Sight) { s.Probes = make([]Probed, len(a.Addresses)) })
	case Measure:
		result(func(s *Sight) { s.Path = &Measured{Done: true, Fit: Fit{MTU: a.MTU, Passes: a.MTU}} })
	case EnsureConnection:
		result(func(s *Sight) { s.Written = &Written{Connection: a.Want} })
	case WriteStatus:
		result(func(s *Sight) { s.Written = &Written{Connection: a.Connection, Status: true} })
	}
	g.done = append(g.done, strings.TrimPrefix(fmt.Sprintf("%T", action), "plan."))
}

// TestAnyTroubleIsOverSoon: whatever is lost, late or fails for a while, and however the tunnel goes to and fro, once
// all works the tunnel is connected within a ping's interval and a second, and soon reported so.
func TestAnyTroubleIsOverSoon(t *testing.T) {
	t.Parallel()
	for n, r := range seed.Samples(t, 200) {
		g := simulate(t, n%2 == 1, 1+r.IntN(3))
		type event struct {
			at time.Time
			f  func(*Sight)
		}
		var queue []event
		healed := g.now.Add(time.Duration(r.IntN(100)) * time.Second)
		trouble := func() bool { return g.now.Before(healed) && r.IntN(3) > 0 }
		delay := func() time.Duration {
			if trouble() {
				return time.Duration(r.IntN(int(5 * time.Second)))
			}
			return time.Duration(r.IntN(int(20 * time.Millisecond)))
		}
		g.later = func(f func(*Sight)) {
			if bad := trouble(); bad {
				f = func(f func(*Sight)) func(*Sight) {
					return func(s *Sight) {
						f(s)
						if s.Resolved != nil {
							s.Resolved.Err = "no such host"
						}
						if s.Written != nil {
							s.Written = &Written{Failed: true}
						}
						if s.Path != nil {
							s.Path.Done = false
						}
					}
				}(f)
			}
			queue = append(queue, event{g.now.Add(delay()), f})
		}
		g.send = func(m Send) {
			if m.Type != Ping || trouble() {
				return
			}
			at := g.now.Add(delay())
			queue = append(queue, event{at, func(s *Sight) {
				s.Answers = append(s.Answers, Answer{Tunnel: m.Tunnel, Sent: m.Sent, At: at})
			}})
		}
		connected := func() netv1beta1.ConnectionStatusValue {
			_, value := g.state.Connection(g.now, netv1beta1.Connecting, usual)
			return value
		}
		soon := usual.Interval + time.Second
		for end := healed.Add(5*time.Second + soon); g.now.Before(end); { // the slowest action began just before
			if g.now.Sub(healed) > soon && connected() != netv1beta1.Connected {
				t.Fatalf("sample %d: %v after all works the tunnel is %s", n, g.now.Sub(healed), connected())
			}
			at := g.now.Add(time.Second)
			if !g.wake.IsZero() && g.wake.Before(at) {
				at = g.wake
			}
			slices.SortStableFunc(queue, func(a, b event) int { return a.at.Compare(b.at) })
			if len(queue) > 0 && !queue[0].at.After(at) {
				at = queue[0].at
				queue[0].f(&g.in)
				queue = queue[1:]
			}
			switch bad := at.Before(healed); {
			case bad && r.IntN(50) == 0:
				g.in.Objects.GatewayIP = [](*string){new(here.String()), new(there.String()), new(""), nil}[r.IntN(4)]
			case bad && r.IntN(50) == 0:
				g.in.Objects.PeerKey = []string{"", "key", "other"}[r.IntN(3)]
			case bad && r.IntN(50) == 0:
				g.in.Moved = true
			case bad && r.IntN(10) == 0:
				g.in.Looked = g.state.Revision
			case !bad:
				g.in.Objects = Objects{Complete: true, PeerKey: "key", GatewayIP: new(here.String())}
			}
			g.decide(at)
		}
		if value := g.state.Report.Value; value != netv1beta1.Connected {
			t.Errorf("sample %d: the tunnel is connected and reported as %q", n, value)
		}
	}
}

// TestServersHandOver: a server that is told to end relays to itself, then to the pod that nodes are routed to, asks its
// client to come there for 2 s, forgets it and ends; the other asks a client that comes through it.
func TestServersHandOver(t *testing.T) {
	t.Parallel()
	g := simulate(t, true, 1)
	g.later = func(f func(*Sight)) { f(&g.in) }
	start := g.now
	steps := []struct {
		claim   string
		after   time.Duration
		observe func(*Sight)
		want    string
		phase   Phase
	}{
		{"it has the tunnel", 0, func(*Sight) {}, "", Fetching},
		{"nobody comes through another server", 5 * time.Second, func(*Sight) {}, "", Idle},
		{"it is told to end", 5 * time.Second, func(s *Sight) { s.Stop = start.Add(5 * time.Second) }, "OpenRelay", Idle},
		{"it relays to itself", 5010 * time.Millisecond, func(*Sight) {}, "", Idle},
		{"another is named", 6 * time.Second, func(s *Sight) { s.Objects.GatewayIP = new(there.String()) }, "OpenRelay", OpeningRelay},
		{"the kernel has the rules", 6010 * time.Millisecond, func(s *Sight) { s.Looked = g.state.Revision }, "Send", Asking},
		{"100 ms later", 6110 * time.Millisecond, func(*Sight) {}, "Send", Asking},
		{"2 s later", 8010 * time.Millisecond, func(*Sight) {}, "CloseRelay Forget", Idle},
		{"the kernel has no relay any more", 8020 * time.Millisecond, func(s *Sight) { s.Looked = g.state.Revision }, "End", Idle},
	}
	for _, c := range steps {
		c.observe(&g.in)
		g.decide(start.Add(c.after))
		done := slices.DeleteFunc(g.done, func(a string) bool { return a == "EnsureConnection" || a == "WriteStatus" || a == "Measure" })
		if got := strings.Join(done, " "); got != c.want || g.state.Handover.Phase != c.phase {
			t.Errorf("%s: it does %q in phase %d, want %q in %d", c.claim, got, g.state.Handover.Phase, c.want, c.phase)
		}
	}

	g = simulate(t, true, 1)
	g.in.Objects.GatewayIP = new(there.String())
	g.decide(start)
	g.in.Objects.GatewayIP = new(here.String())
	g.decide(start.Add(time.Second))
	for _, from := range []netip.Addr{there, netip.MustParseAddr("192.0.2.9")} {
		clear(g.running)
		g.in.Counters = &Counters{Traffic: []kernel.Traffic{{Endpoint: netip.AddrPortFrom(from, 1)}}}
		if g.decide(g.now.Add(fetchEvery)); slices.Contains(g.done, "Send") != (from == there) {
			t.Errorf("a client that comes from %s, where the other server is %s: %s", from, there, g.done)
		}
	}
}

// TestAnEndWaitsForTheLastLook: a gateway that nobody follows is not needed after 25 s, and ends once the kernel has no
// rule that leads to its sockets.
func TestAnEndWaitsForTheLastLook(t *testing.T) {
	t.Parallel()
	for _, takes := range []time.Duration{0, 7 * time.Second} {
		g := simulate(t, true, 1)
		start := g.now
		g.in.Stop = start
		g.decide(start)
		g.in.Relays = &[]kernel.Relay{{Port: 51840, To: 4000}}
		g.decide(start.Add(time.Millisecond))
		g.in.Looked = g.state.Revision
		for end := start.Add(leaveWithin + takes); g.wake.Before(end); {
			g.decide(g.wake)
			if slices.Contains(g.done, "End") {
				t.Fatalf("a look that takes %v: it ends after %v", takes, g.now.Sub(start))
			}
		}
		g.decide(start.Add(leaveWithin + takes))
		g.in.Looked = g.state.Revision
		if g.decide(g.now.Add(time.Millisecond)); g.state.Want.Relays != nil || !slices.Contains(g.done, "End") {
			t.Errorf("a look that takes %v: it wants %v then, and does %v", takes, g.state.Want.Relays, g.done)
		}
	}
}

// TestServersReadCountersAnyway: also while nothing can be reported, so that handshakes of tunnels in which pings are not
// answered do not grow old.
func TestServersReadCountersAnyway(t *testing.T) {
	t.Parallel()
	g := simulate(t, true, 2)
	g.later = func(f func(*Sight)) { f(&g.in) }
	g.decide(g.now)
	g.in.Written, g.state.Report.Running = nil, true // a write that never ends
	for end := g.now.Add(5 * time.Minute); g.now.Before(end); {
		g.decide(g.wake)
	}
	if age := g.now.Sub(g.state.Reading.At); age > mtuEvery {
		t.Errorf("the counters are %v old", age)
	}
}

// TestLaterTurnsAreHeeded: a client that cannot read the lease gives up the tunnel when the peer reports a later leader,
// and no sooner than another replica could have followed.
func TestLaterTurnsAreHeeded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		claim    string
		server   bool
		own, at  int64
		silent   time.Duration
		gives    bool
		reported bool
	}{
		{"a later one", false, 5, 6, time.Minute, true, true}, {"the same", false, 5, 5, time.Minute, false, true}, {"none", false, 5, 0, time.Minute, false, true},
		{"a later one, while the lease was just read", false, 5, 6, time.Second, false, true}, {"without an election", false, 0, 6, time.Minute, false, true},
		{"at a server", true, 5, 6, time.Minute, false, true}, {"in an answer of before", false, 5, 6, time.Minute, false, false},
	} {
		g := simulate(t, c.server, 1)
		g.in.LeaderElection, g.in.Lease.Duration = true, 3*time.Second
		g.in.Leader = Leader{Active: true, Turn: c.own, Renewed: g.now}
		g.decide(g.now)
		sent := g.state.Tunnels[0].Pinged
		if !c.reported {
			sent = sent.Add(-time.Second)
		}
		g.in.Answers = []Answer{{Sent: sent, At: g.now, Turn: c.at}}
		if g.decide(g.now.Add(c.silent)); g.state.Holds == c.gives || (g.state.Want.PeerKey == "") != c.gives {
			t.Errorf("%s: it has the tunnel: %t", c.claim, g.state.Holds)
		}
		if c.gives {
			for _, at := range []netip.Addr{there, here} {
				g.in.Objects.GatewayIP = new(at.String())
				if g.decide(g.now); g.state.Holds != (at == here) {
					t.Errorf("%s: nodes are routed to %s, and it has the tunnel: %t", c.claim, at, g.state.Holds)
				}
			}
		}
		g.in.Leader.Renewed = g.now
		if g.decide(g.now); !g.state.Holds {
			t.Errorf("%s: a leader that reads the lease again has not the tunnel", c.claim)
		}
	}
}

// BenchmarkGateway: a decision with the most tunnels takes less than a millisecond.
func BenchmarkGateway(b *testing.B) {
	g := simulate(nil, false, 64)
	state := Gateway(g.in, State{}, g.now).State
	g.in.Counters = &Counters{Traffic: make([]kernel.Traffic, 64)}
	for b.Loop() {
		g.now = g.now.Add(200 * time.Millisecond)
		state = Gateway(g.in, state, g.now).State
	}
}
