// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"
	"time"

	kernel "github.com/liqo-go/liqo/network/plan"
)

const (
	// redialEager is the time between two attempts to reach a server that never answered: WireGuard
	// itself tries every 5 s, which is long for a user who waits for a peering. A server that did
	// answer is dialled again after Health.Silent.
	redialEager = time.Second
	// redialFirst is the time before the first of these: what a client sent while its server was
	// being replaced is lost. Round trips on Earth take up to 300 ms.
	redialFirst = 300 * time.Millisecond
	// redialLate is the time between two attempts after redialEagerPings regular pings without an
	// answer, which is a minute. It is longer than the 5 s after which WireGuard tries again: a server
	// that is not heard itself goes on sending to the port where it was heard last.
	redialLate       = 10 * time.Second
	redialEagerPings = 30
	// redialBack is the time since the last answer after which every other attempt is between the port
	// and the address where the server was heard last. Routers and kube-proxy still know that flow, which may lead to a
	// server that new flows do not reach: one whose node port changed, until the client is told. In
	// band it is told through the tunnel. New flows reach a server that moved within 1 s.
	redialBack = 5 * time.Second
	// redialOnce is the time between two attempts if pings end with the first answer: a peer may
	// answer none, and a handshake needs 2 s to count as one.
	redialOnce = 5 * time.Second
)

// Dial holds where a client dials. It is empty on servers.
type Dial struct {
	// Hosts are addresses or names of the server. Each leads to it; the first is preferred.
	Hosts []string
	// InUse is the number of the host in use.
	InUse int
	// Found is the address of each host; invalid while its name has none.
	Found []netip.Addr
	// Known holds the sorted addresses of each name; those of the pod's family if there are any.
	Known [][]netip.Addr
	// All is the time when every tunnel was dialled.
	All time.Time
	// Running reports that tunnels are being dialled.
	Running bool
	// LookingUp reports that the DNS is being asked, and LookUp is the time to ask next. Asked is
	// the time when that was requested out of turn.
	LookingUp     bool
	LookUp, Asked time.Time
	// Nameless reports that the DNS had no address the last time.
	Nameless bool
}

func newDial(hosts []string) Dial {
	d := Dial{Hosts: hosts, Known: make([][]netip.Addr, len(hosts))}
	for _, host := range hosts {
		d.Found = append(d.Found, literal(host))
	}
	return d
}

func (d Dial) clone() Dial {
	d.Found, d.Known = slices.Clone(d.Found), slices.Clone(d.Known)
	return d
}

// literal returns the address that a host is; invalid for a name.
func literal(host string) netip.Addr {
	a, _ := netip.ParseAddr(host)
	return a.Unmap()
}

// endpoint returns the address to dial; invalid if there is none.
func (x *Dial) endpoint(port int) netip.AddrPort {
	if len(x.Found) == 0 || !x.Found[x.InUse].IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(x.Found[x.InUse], uint16(port))
}

// addresses returns the address of each host; invalid where a name has none. For a name that is its
// first address, so that messages stay the same while others are dialled.
func (x *Dial) addresses() []netip.Addr {
	out := slices.Clone(x.Found)
	for n, known := range x.Known {
		if len(known) > 0 {
			out[n] = known[0]
		}
	}
	return out
}

// next selects the next address of the name in use, and after its last one the next host: a node
// that leads to the server may have failed with it.
func (x *Dial) next() {
	known := x.Known[x.InUse]
	i := slices.Index(known, x.Found[x.InUse]) + 1
	if len(known) > 0 {
		x.Found[x.InUse] = known[i%len(known)]
	}
	if len(x.Hosts) > 1 && i >= len(known) {
		x.InUse, x.LookUp = (x.InUse+1)%len(x.Hosts), time.Time{}
	}
}

// choose chooses among the addresses of the name in use. The current one stays, because a name with
// several is no reason to move while it answers. Otherwise it is the first of the pod's family, six
// or not, which can be reached, or the first.
func (x *Dial) choose(addrs []netip.Addr, six bool) {
	var all, reached []netip.Addr
	for _, a := range addrs {
		if a = a.Unmap(); a.Is6() == six {
			reached = append(reached, a)
		}
		all = append(all, a)
	}
	if len(reached) == 0 {
		reached = all
	}
	if !slices.Contains(all, x.Found[x.InUse]) {
		x.Found[x.InUse] = reached[0]
	}
	slices.SortFunc(reached, netip.Addr.Compare)
	x.Known[x.InUse] = reached
}

// take considers the answer of the DNS. The last address stays while there is none.
func (x *Dial) take(d *decider) {
	a := d.in.Resolved
	if a == nil {
		return
	}
	x.LookingUp = false
	if a.Host != x.Hosts[x.InUse] {
		return // another is dialled by now
	}
	none := a.Err != "" || len(a.Found) == 0
	if none && !x.Nameless {
		d.log("The name of the gateway server has no address", "name", a.Host, "error", a.Err)
	}
	if x.Nameless = none; none {
		x.LookUp = d.now.Add(redialLate)
		return
	}
	x.choose(a.Found, d.in.Own.Is6())
	x.LookUp = d.now.Add(max(d.in.DNSCheckInterval, redialEager))
}

// lookUp asks the DNS for the name in use when that is due.
func (x *Dial) lookUp(d *decider) {
	if len(x.Hosts) == 0 || x.LookingUp || !d.in.Own.IsValid() {
		return
	}
	if host := x.Hosts[x.InUse]; !literal(host).IsValid() && d.due(x.LookUp) {
		x.LookingUp = true
		d.act(LookUp{host})
	}
}

// redial makes a client try the server again if that is due: the server that hands over asks for it,
// or it does not answer. The client dials the address that the name has now. If nothing at all came
// through a tunnel, it begins a new handshake; if that was tried before, at the next address.
func (x *Dial) redial(d *decider, fresh bool) {
	if x.Running = x.Running && !d.in.Redialled; x.Running {
		return
	}
	if d.in.Server || d.Peer == "" || !d.Holds || !fresh && !d.in.Moved {
		return
	}
	due, lookUp, next := x.due(d)
	back := takeTurns(d.Tunnels, due, d.now)
	if lookUp {
		x.LookUp = time.Time{}
	}
	if next && !back {
		x.next()
	}
	if len(due) == 0 {
		return
	}
	again := Redial{Peer: d.Peer}
	for n := range d.Tunnels {
		t := &d.Tunnels[n]
		if !slices.Contains(due, n) {
			t.Hurry = t.Hurry || t.Open.IsZero() // the server may be gone from there, too
			continue
		}
		to := Dialling{Tunnel: n, At: x.endpoint(d.in.Ports()[n])}
		if n == 0 {
			to.From = d.in.ListenPort
		}
		if t.Back = t.Back && to.From == 0 && !d.in.TCP; t.Back {
			to.From, to.At = t.Port, t.From
		}
		t.Traffic = kernel.Traffic{} // the counters restart with the peer
		again.Dials = append(again.Dials, to)
	}
	x.Running, d.Reading.Stale = true, d.Reading.Running
	d.act(again)
}

// due returns the tunnels to dial again: all if the server answers in none, else those in which
// it does not. It also reports whether to ask the DNS, and whether to try the server's next address.
func (x *Dial) due(d *decider) (due []int, lookUp, next bool) {
	answers, brings, soonest := false, false, redialLate
	asked := d.in.Moved
	waits := make([]time.Duration, len(d.Tunnels))
	for n := range d.Tunnels {
		t := &d.Tunnels[n]
		if n > 0 && t.Answered.IsZero() && d.now.Sub(t.Traffic.Handshake) < handshakeLasts {
			continue // it may answer pings in the first only: this one goes with the others
		}
		wait, overdue := redialDue(d.now, asked, t.Dialled.After(t.Answered), t.Health, d.in.Ping)
		if !overdue {
			answers = true
			continue
		}
		waits[n], soonest = wait, min(soonest, wait)
		switch {
		case !asked && d.now.Sub(t.At) < wait:
			brings = true
		case d.now.Sub(t.Dialled) >= wait:
			due = append(due, n)
		}
	}
	paused := d.now.Sub(x.All) >= soonest
	if lookUp = !asked && !answers && paused && d.now.Sub(x.Asked) >= redialEager; lookUp {
		x.Asked = d.now
	}
	if !answers && !brings {
		due = nil
		if paused {
			brought := func(t Tunnel) bool { return !t.At.Before(x.All) }
			next, x.All = !asked && !slices.ContainsFunc(d.Tunnels, brought), d.now
			for n := range d.Tunnels {
				due = append(due, n)
			}
		}
	}
	return due, lookUp, next
}

// takeTurns notes that tunnels are dialled, and reports whether one of them is from its old port. Such an
// attempt takes no turn of the server's addresses.
func takeTurns(tunnels []Tunnel, due []int, now time.Time) (back bool) {
	for _, n := range due {
		t := &tunnels[n]
		t.Dialled, t.Back = now, now.Sub(t.Answered) >= redialBack && t.From.IsValid() && !t.Back
		back = back || t.Back
	}
	return back
}

// redialDue reports whether to dial the server again, and the minimum time since the last attempt.
// tried reports whether the server was dialled since its last answer: packets in flight are lost by
// then, so one late answer is enough.
func redialDue(now time.Time, asked, tried bool, h Health, p PingPolicy) (wait time.Duration, due bool) {
	since := h.Answered
	if since.IsZero() {
		since = h.Started
	}
	switch {
	case asked:
		return moveEvery, true
	case now.Sub(since) >= redialEagerPings*p.Interval:
		return redialLate, h.Late(now)
	case h.Answered.IsZero() && p.Once:
		return redialOnce, now.Sub(h.Started) >= redialFirst
	case h.Answered.IsZero():
		return redialEager, now.Sub(h.Started) >= redialFirst
	}
	return h.Patience(), h.Silent(now) || tried && h.Late(now)
}
