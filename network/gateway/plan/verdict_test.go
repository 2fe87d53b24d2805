// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/liqo-go/liqo/internal/story"
)

// TestVerdicts tells what is said of everything a gateway can see: in testdata/verdicts.txt.
func TestVerdicts(t *testing.T) {
	start := time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)
	now := start.Add(time.Minute)
	just, before := now.Add(-5*time.Second), start.Add(20*time.Second)
	at := func(host, address string) Target {
		a, _ := netip.ParseAddr(address)
		return Target{Host: host, At: a}
	}
	refusing := func(t Target) Target { t.Refused = just; return t }
	node := at("203.0.113.7", "203.0.113.7")
	second := at("203.0.113.8", "203.0.113.8")
	base := Evidence{
		Health: Health{Started: start, Open: start}, Namespace: "liqo-tenant-milan", Name: "milan", Tells: true,
		Port: 31840,
	}
	var b strings.Builder
	tell := func(claim, reason, message string) { fmt.Fprintf(&b, "# %s\n%s: %s\n\n", claim, reason, message) }
	for _, c := range []struct {
		claim  string
		server bool
		see    func(*Evidence)
	}{
		{"a client that has just begun", false, func(s *Evidence) { s.Started, s.Open = now, now }},
		{"a client that sees nothing at all: blocked, wrong address, NAT, wrong key", false, func(s *Evidence) {}},
		{"a client that dials a private address and sees nothing", false, func(s *Evidence) { s.Targets = []Target{at("10.9.8.7", "10.9.8.7")} }},
		{"a client whose server's name has no address", false, func(s *Evidence) { s.Targets = []Target{at("gw.milan.example", "")} }},
		{"a client to which the port is refused", false, func(s *Evidence) { s.Targets = []Target{refusing(at("gw.milan.example", "203.0.113.7"))} }},
		{"a client to which the port is refused at all nodes", false, func(s *Evidence) { s.Targets = []Target{refusing(node), refusing(second)} }},
		{"a client to which the port is refused at one node, nothing comes from another, a name is unknown", false, func(s *Evidence) {
			s.Targets = []Target{at("gw.milan.example", ""), node, refusing(second)}
		}},
		{"a client over TCP that is connected to one node and refused by another", false, func(s *Evidence) {
			s.TCP, s.Targets = true, []Target{refusing(second), node}
			s.Targets[1].Listening = just
		}},
		{"a client to which nothing comes from any node", false, func(s *Evidence) { s.Targets = []Target{node, second} }},
		{"a client to which the address is unreachable", false, func(s *Evidence) { s.Targets[0].Unreachable = just }},
		{"a client over TCP that is connected and not answered", false, func(s *Evidence) { s.TCP, s.Targets[0].Listening = true, just }},
		{"a client to which the port was refused long ago", false, func(s *Evidence) { s.Targets[0].Refused = before }},
		{"a client that hears the server: blocked from here to there", false, func(s *Evidence) { s.Answered, s.Open, s.Heard = before, before, just }},
		{"a client that heard the server until pings stayed without answer", false, func(s *Evidence) { s.Answered, s.Open, s.Heard = just, just, just }},
		{"a client whose tunnel works, without pings", false, func(s *Evidence) { s.Heard, s.Handshake = just, just }},
		{"a client whose tunnel works since now", false, func(s *Evidence) { s.Heard, s.HeardFirst, s.Handshake = now, before, now }},
		{"a server that hears the client since now", true, func(s *Evidence) { s.Heard, s.HeardFirst = now, now }},
		{"a server that sees nothing", true, func(s *Evidence) {}},
		{"a server that sees nothing, with WireGuard in the kernel", true, func(s *Evidence) { s.Tells = false }},
		{"a server that sees nothing over TCP", true, func(s *Evidence) { s.TCP = true }},
		{"a server that hears the client: blocked from here to there", true, func(s *Evidence) { s.Heard, s.From = just, netip.MustParseAddr("198.51.100.4") }},
		{"a server called with an unknown key", true, func(s *Evidence) { s.Strange = just }},
		{"a server called by another key than its own", true, func(s *Evidence) { s.Misaddressed = just }},
		{"a server whose client's clock went back", true, func(s *Evidence) { s.Replayed = just }},
		{"a client called with an unknown key", false, func(s *Evidence) { s.Strange = just }},
		{"a client from which the server's key was taken", false, func(s *Evidence) { s.Keyless, s.Heard = true, just }},
		{"a server from which the client's key was taken", true, func(s *Evidence) { s.Keyless, s.Strange = true, just }},
	} {
		s := base
		if s.Server = c.server; s.Server {
			s.Port = 51840
		} else {
			s.Targets = []Target{node}
		}
		c.see(&s)
		reason, message := s.Verdict(now)
		tell(c.claim, reason, message)
	}
	for _, c := range []struct {
		claim string
		fit   Fit
	}{
		{"full packets pass and the peer says nothing", Fit{MTU: 1340, Passes: 1340}},
		{"full packets pass and the peer has the same MTU", Fit{MTU: 1340, Peer: 1340, Passes: 1340}},
		{"the peer has another MTU", Fit{MTU: 1340, Peer: 1200, Passes: 1340}},
		{"the path is narrower than the tunnel", Fit{MTU: 1340, Peer: 1340, Passes: 1127}},
	} {
		_, reason, message := c.fit.Verdict()
		tell(c.claim, reason, message)
	}
	story.File(t, "testdata/verdicts.txt", b.String())
}

// TestPathMTU: one smaller measurement changes nothing, a second one or a larger one counts at once.
func TestPathMTU(t *testing.T) {
	for _, c := range []struct {
		now, before Fit
		want        int
	}{
		{Fit{MTU: 1340, Passes: 900}, Fit{}, 900},
		{Fit{MTU: 1340, Passes: 900}, Fit{MTU: 1340, Passes: 1340}, 1340},
		{Fit{MTU: 1340, Passes: 900}, Fit{MTU: 1340, Passes: 900}, 900},
		{Fit{MTU: 1340, Passes: 1340}, Fit{MTU: 1340, Passes: 900}, 1340},
		{Fit{MTU: 1200, Passes: 900}, Fit{MTU: 1340, Passes: 1340}, 900}, // of another tunnel
	} {
		if got := c.now.PathMTU(c.before); got != c.want {
			t.Errorf("%+v after %+v: %d, want %d", c.now, c.before, got, c.want)
		}
	}
}

// TestSizesAreFound: the search ends near every width of the path, below it, in few steps.
func TestSizesAreFound(t *testing.T) {
	const full, short = 1340, 176
	for width := short; width <= full+1; width++ {
		s, steps := Sizes{Passes: short}, 0
		for size := s.Next(full); size != 0; size = s.Next(full) {
			if steps++; size <= width {
				s.Passes = size
			} else {
				s.Fails = size
			}
		}
		if s.Passes > width || width-s.Passes > sizesApart || width >= full && steps != 1 || steps > 9 {
			t.Errorf("a path of %d: found %d in %d steps", width, s.Passes, steps)
		}
	}
}
