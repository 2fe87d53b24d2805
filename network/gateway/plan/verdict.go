// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Reasons of a Connection's condition Ready while the peer's gateway does not answer. The message
// beside says what to do.
const (
	// ReasonConnecting: it has not had the time yet.
	ReasonConnecting = "Connecting"
	// ReasonNameUnknown: the server's name has no address. Correct the name or the DNS.
	ReasonNameUnknown = "NameUnknown"
	// ReasonPortRefused: nothing listens there. Correct the port, or see whether the server runs.
	ReasonPortRefused = "PortRefused"
	// ReasonAddressUnreachable: no way leads there. Correct the address, or the routes.
	ReasonAddressUnreachable = "AddressUnreachable"
	// ReasonNoAnswer: the client knows no more. Look at the server's Connection.
	ReasonNoAnswer = "NoAnswer"
	// ReasonNothingArrives: the server receives nothing. Open the path to it, or correct the
	// address the client dials.
	ReasonNothingArrives = "NothingArrives"
	// ReasonOneWay: the peer's packets arrive, but the peer receives none. Open the path to the
	// peer.
	ReasonOneWay = "OneWay"
	// ReasonPingsUnanswered: the tunnel works and pings are not answered. Enable them at the peer.
	ReasonPingsUnanswered = "PingsUnanswered"
	// ReasonWrongKey: one side does not have the other's current key. Apply it.
	ReasonWrongKey = "WrongKey"
	// ReasonPublicKeyMissing: the peer's PublicKey was taken away. Apply it, or remove the peering.
	ReasonPublicKeyMissing = "PublicKeyMissing"
	// ReasonClockWentBack: the peer's handshakes are older than those before. Set its clock.
	ReasonClockWentBack = "ClockWentBack"
)

// Reasons of MTUFits.
const (
	ReasonMTUFits = "MTUFits"
	// ReasonMTUTooLarge: the path is narrower than the tunnel, so this gateway sends shorter
	// packets. Lower the MTU on both sides.
	ReasonMTUTooLarge = "MTUTooLarge"
	// ReasonMTUsDiffer: the two sides have different MTUs. Set the same.
	ReasonMTUsDiffer = "MTUsDiffer"
)

const (
	// ReasonKernelRefuses: the gateway's network is not as wanted. Allow what the message says.
	ReasonKernelRefuses = "KernelRefuses"
)

// Reasons of PortsAnswer.
const (
	ReasonPortsAnswer = "PortsAnswer"
	// ReasonPortSilent: nothing comes back on a port. Open it on the way.
	ReasonPortSilent = "PortSilent"
)

// PortsVerdict reports whether all ports answer, and what to do if not.
func PortsVerdict(silent []int, tcp bool) (all bool, reason, message string) {
	if len(silent) == 0 {
		return true, ReasonPortsAnswer, "the peer's gateway answers on all ports"
	}
	words := make([]string, len(silent))
	for i, port := range silent {
		words[i] = fmt.Sprint(port)
	}
	return false, ReasonPortSilent, fmt.Sprintf("the peer's gateway does not answer on %s port %s, so the others "+
		"carry everything: open it in the firewalls and security groups of both sides, and compare the ports of "+
		"both gateways",
		Evidence{TCP: tcp}.transport(), strings.Join(words, ", "))
}

// Evidence holds what a gateway observed of its peer. Times are those of the last observation; zero =
// never.
type Evidence struct {
	Health
	// Namespace and Name are those of the local gateway.
	Namespace, Name string
	Server, TCP     bool
	// Targets are the targets that a client dials in turn, at Port. A server listens on Port.
	Targets []Target
	Port    int
	// Handshake is the time of the last complete handshake: packets went both ways. Heard is that
	// of the peer's last packet that WireGuard accepted. HeardFirst is that of the first one
	// without a longer pause since. From is the source address.
	Handshake, Heard, HeardFirst time.Time
	From                         netip.Addr
	// Tells reports whether WireGuard reports handshakes that it refuses; the kernel's does not.
	Tells bool
	// Misaddressed handshakes were made for another key than the local one, Strange ones with
	// another key than the peer's. Replayed ones are older than an accepted one.
	Misaddressed, Strange, Replayed time.Time
}

// Target is an address or name of a server and what its client learned by sending to the port there
// from beside the tunnel: that an ICMP message or a TCP reset came back, or, over TCP only, that
// somebody listens. Times are when; zero = never.
type Target struct {
	Host string
	// At is the host's address, invalid while a name has none.
	At                              netip.Addr
	Refused, Unreachable, Listening time.Time
}

const (
	// grace is the time without a diagnosis of a missing answer: handshake, ping, and a second
	// attempt of both.
	grace = 3 * time.Second
	// EvidenceFor is how long an observation counts: the slowest clients retry every 10 s.
	EvidenceFor = 15 * time.Second
	// inFlight is how long packets arrive that were sent before the first ping without answer, and
	// how long after a first packet the answer to a ping may take.
	inFlight = time.Second
)

// Verdict returns why the peer's gateway does not answer, as far as one side can know, and what to
// do.
//
//	           handshakes that are not ours   packets of the peer        nothing
//	server     WrongKey, ClockWentBack        OneWay, PingsUnanswered    NothingArrives
//	client     (the same)                     (the same)                 NameUnknown, PortRefused,
//	                                                                     AddressUnreachable, NoAnswer
//
// Without the peer's key the reason is PublicKeyMissing, whatever was observed.
func (s Evidence) Verdict(now time.Time) (reason, message string) {
	seen := func(at time.Time) bool { return !at.IsZero() && now.Sub(at) < EvidenceFor }
	heard := seen(s.Heard) && (s.Answered.IsZero() || s.Heard.Sub(s.Open) > inFlight)
	works := heard && s.Handshake.After(s.Open)
	fresh := heard && now.Sub(s.HeardFirst) < inFlight || works && now.Sub(s.Handshake) < inFlight
	switch {
	case s.Keyless:
		return ReasonPublicKeyMissing, fmt.Sprintf("no PublicKey of the peer is here any more that WireGuard could "+
			"use, so nobody is answered: to connect again, run '%s' in the peer's cluster and apply in namespace "+
			"%s here what it prints", keyCommand(!s.Server, "…"), s.Namespace)
	case s.Answered.IsZero() && now.Sub(s.Started) < grace, fresh:
		return ReasonConnecting, "the peer's gateway has not answered yet; wait"
	case works:
		return ReasonPingsUnanswered, "the tunnel works, but the peer's gateway does not answer pings in it; check " +
			"that they use the same UDP port and the same tunnel addresses"
	case heard:
		return ReasonOneWay, s.oneWay()
	case seen(s.Strange):
		return ReasonWrongKey, fmt.Sprintf("handshakes arrive that were made with another key than the peer's "+
			"PublicKey here: run '%s' in the peer's cluster and apply in namespace %s here what it prints",
			keyCommand(!s.Server, "…"), s.Namespace)
	case seen(s.Misaddressed):
		return ReasonWrongKey, fmt.Sprintf("handshakes arrive that were made for another key than this gateway's: "+
			"run '%s -n %s' here and apply in the peer's cluster what it prints",
			keyCommand(s.Server, s.Name), s.Namespace)
	case seen(s.Replayed):
		return ReasonClockWentBack, fmt.Sprintf("the peer's handshakes are older than one before, so its clock "+
			"went back: set the clocks of its nodes, or forget the old handshake with 'kubectl -n %s delete pod -l "+
			"networking.liqo.io/gateway-name=%s'", s.Namespace, s.Name)
	case s.Server:
		return ReasonNothingArrives, s.nothingArrives()
	}
	return s.unanswered(seen)
}

// unanswered returns the reason and message of a client that receives nothing. seen reports whether
// an observation counts.
func (s Evidence) unanswered(seen func(at time.Time) bool) (reason, message string) {
	listening := s.targets(func(t Target) bool { return seen(t.Listening) && !seen(t.Refused) })
	refusing := s.targets(func(t Target) bool { return seen(t.Refused) })
	unreachable := s.targets(func(t Target) bool { return seen(t.Unreachable) })
	switch {
	case len(s.resolved()) == 0:
		return ReasonNameUnknown, fmt.Sprintf("the DNS has no address for %s, the server's name; correct it, or "+
			"spec.endpoint.addresses of the GatewayClient", names(s.Targets))
	case len(listening) > 0:
		return ReasonNoAnswer, s.noKey(listening)
	case len(refusing) > 0:
		return ReasonPortRefused, fmt.Sprintf("nothing listens at %s: packets to there are refused. The server's "+
			"gateway does not run, or %s", s.place(refusing), notTheServer)
	case len(unreachable) > 0:
		return ReasonAddressUnreachable, fmt.Sprintf("routers find no way to %s: there is no route, or %s",
			s.place(unreachable), notTheServer)
	}
	return ReasonNoAnswer, s.noAnswer()
}

func (s Evidence) targets(which func(Target) bool) []Target {
	return slices.DeleteFunc(slices.Clone(s.Targets), func(t Target) bool { return !which(t) })
}

// resolved returns the targets that have an address.
func (s Evidence) resolved() []Target {
	return s.targets(func(t Target) bool { return t.At.IsValid() })
}

// notTheServer is a client's mistake, and how it is found.
const notTheServer = "spec.endpoint of the GatewayClient is not what 'kubectl get gatewayservers -A' shows in the " +
	"server's cluster; the liqoctl command that connected the clusters, typed again, corrects it"

func (s Evidence) transport() string {
	if s.TCP {
		return "TCP"
	}
	return "UDP"
}

// place is where a client dials the server.
func (s Evidence) place(of []Target) string {
	return fmt.Sprintf("%s, %s port %d", names(of), s.transport(), s.Port)
}

// names returns the names and addresses of all targets. They do not depend on the one dialled now,
// so that the message is stable.
func names(of []Target) string {
	var all []string
	for _, t := range of {
		name := t.Host
		if at := t.At.String(); t.At.IsValid() && name != at {
			name = fmt.Sprintf("%s (%s)", name, at)
		}
		all = append(all, name)
	}
	return strings.Join(all, " and ")
}

// keyCommand prints the current PublicKey of a gateway.
func keyCommand(server bool, name string) string {
	side := "client"
	if server {
		side = "server"
	}
	return fmt.Sprintf("liqoctl generate publickey --gateway-type %s --gateway-name %s", side, name)
}

func (s Evidence) oneWay() string {
	from, to := "server", s.place(s.resolved())
	if s.Server {
		from, to = "client", fmt.Sprintf("%s, from %s port %d of this gateway,", s.From, s.transport(), s.Port)
	}
	return fmt.Sprintf("the %s's packets arrive, but what is sent to %s does not: it is blocked on the way; open "+
		"it in the firewalls and security groups of both sides", from, to)
}

func (s Evidence) nothingArrives() string {
	causes := []string{
		fmt.Sprintf("the client dials something else than 'kubectl -n %s get gatewayserver %s' shows",
			s.Namespace, s.Name),
		fmt.Sprintf("a firewall or security group does not let %s there", s.transport()),
		"a NAT in front of this cluster does not forward it: peer with --gw-client-address and --gw-client-port, " +
			"what it forwards",
	}
	if !s.Tells {
		causes = append(causes,
			"one cluster has an old PublicKey of the other: compare with 'liqoctl generate publickey'")
	}
	return fmt.Sprintf("nothing of the client arrives at %s port %d of this gateway. One of: %s",
		s.transport(), s.Port, strings.Join(causes, "; "))
}

// oldKey is a mistake of either side, of which only the server's hears.
const oldKey = "one cluster has an old PublicKey of the other"

func (s Evidence) noAnswer() string {
	blocked := fmt.Sprintf("a firewall or security group blocks %s to there or back", s.transport())
	causes := []string{notTheServer, blocked, oldKey}
	shared := netip.MustParsePrefix("100.64.0.0/10") // RFC 6598
	private := func(t Target) bool { return t.At.IsPrivate() || shared.Contains(t.At) }
	if slices.ContainsFunc(s.Targets, private) {
		causes = append(causes, "the address is private and a NAT is before it: peer with --gw-client-address and "+
			"--gw-client-port, what the NAT forwards")
	}
	return oneOf(fmt.Sprintf("no answer from %s", s.place(s.resolved())), causes...)
}

// noKey returns the message for servers that accept a client's TCP connection but do not answer in
// it.
func (s Evidence) noKey(listening []Target) string {
	return oneOf(fmt.Sprintf("somebody listens at %s, but does not answer as the peer's gateway", s.place(listening)),
		oldKey, notTheServer)
}

func oneOf(said string, causes ...string) string {
	return fmt.Sprintf("%s. One of: %s. The server's side knows more: 'liqoctl info peer' there",
		said, strings.Join(causes, "; "))
}

// Sizes is a search for the longest packet that reaches the peer, in bytes. Passes did, Fails did
// not; 0 = none yet.
type Sizes struct{ Passes, Fails int }

// sizesApart is the difference at which the search ends: a finer step costs another half second
// without benefit.
const sizesApart = 16

// Next returns the size to try, 0 = the search is over. full is the MTU of the tunnel.
func (s Sizes) Next(full int) int {
	switch {
	case s.Passes >= full, s.Fails > 0 && s.Fails-s.Passes <= sizesApart:
		return 0
	case s.Fails == 0:
		return full
	}
	return (s.Passes + s.Fails) / 2
}

// Fit compares a tunnel's MTU with the path, in bytes.
type Fit struct {
	// MTU is the tunnel's local MTU, Peer the remote one; 0 = not known.
	MTU, Peer int
	// Passes is the longest packet that reaches the peer.
	Passes int
}

// PathMTU returns the length of the longest packet to send, in bytes. It is the larger of this
// measurement and the previous one of the same tunnel, because packet loss can make one too small.
func (f Fit) PathMTU(previous Fit) int {
	if previous.MTU == f.MTU {
		return max(f.Passes, previous.Passes)
	}
	return f.Passes
}

// Verdict reports whether the MTU fits, and what to do if not.
func (f Fit) Verdict() (fits bool, reason, message string) {
	const set = "to have the same at both sides, set spec.mtu of both clusters' gateways to %d, or peer again with " +
		"--mtu=%d"
	lower := f.Passes / 10 * 10 // easier to read
	switch least := min(f.MTU, f.Peer); {
	case f.Passes < f.MTU:
		return false, ReasonMTUTooLarge, fmt.Sprintf("packets of %d bytes do not get to the peer, those of %d do: "+
			"the path is narrower than the tunnel's MTU, and pods are told not to send longer ones; "+set,
			f.MTU, f.Passes, lower, lower)
	case f.Peer != 0 && f.Peer != f.MTU:
		return false, ReasonMTUsDiffer, fmt.Sprintf("the tunnel's MTU is %d here and %d at the peer, and each side "+
			"keeps to its own; "+set, f.MTU, f.Peer, least, least)
	}
	return true, ReasonMTUFits, fmt.Sprintf("packets of %d bytes, the tunnel's MTU, get to the peer", f.MTU)
}
