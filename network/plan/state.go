// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// State is what Liqo wants in, or found in, the kernel of one network namespace. It lists only
// what is ours: our devices and what hangs on them, our routing table, our rule, our nft table.
// The zero value is a namespace without Liqo.
type State struct {
	Overlays  []Overlay
	Tunnels   []Tunnel
	Settings  []Setting
	Addresses []Address
	Forwards  []Forward
	Neighbors []Neighbor
	Peers     []Peer
	Routes    []Route
	Rules     []Rule
	// Table is the text of the nft table "inet liqo" as nft prints it; empty = no table.
	Table string
}

// Overlay is a VXLAN device without learning.
type Overlay struct {
	Name string
	// VNI and Port are those of the frames; the port is UDP.
	VNI  int
	Port int
	// Local is the source address of the frames.
	Local netip.Addr
	MAC   string
	MTU   int
	// Down is only found, never wanted.
	Down bool
}

// Tunnel is a WireGuard device. Its private key is not part of a State.
type Tunnel struct {
	Name string
	MTU  int
	// ListenPort is a UDP port; 0 = any.
	ListenPort int
	// PublicKey is our own, in base64.
	PublicKey string
	// Down is only found, never wanted.
	Down bool
}

// Setting is one IPv4 sysctl of a device. Settings are never taken back: the kernel has no
// notion of an unset one.
type Setting struct {
	Device string
	Name   string // SettingForwarding or SettingReversePath
	Value  int
}

// Names of settings.
const (
	SettingForwarding  = "forwarding"
	SettingReversePath = "rp_filter"
)

// Address is an address of one of our devices.
type Address struct {
	Device string
	Prefix netip.Prefix
}

// Forward sends frames for a MAC address to an outer address: a static VXLAN entry.
type Forward struct {
	Device string
	MAC    string
	Outer  netip.Addr
	// Port takes the frames directly; the zero value = they go as the outer address is routed.
	Port Port
}

// Port is a port of a bridge with a pod behind it. A bridge cuts large frames into single
// segments, in software, as it cannot pass on the offload of packets within packets (seen on
// Linux 6.18: 50 segments of 64 KB); the port itself takes them whole.
type Port struct {
	Device string
	// MAC is the pod's.
	MAC string
}

// Neighbor is a permanent neighbour entry.
type Neighbor struct {
	Device string
	Addr   netip.Addr
	MAC    string
}

// Peer is the other end of a tunnel.
type Peer struct {
	Device string
	// PublicKey is in base64 and identifies the peer.
	PublicKey string
	// Endpoint is where it is reached; invalid = learnt from its packets.
	Endpoint netip.AddrPort
	// AllowedIPs are the sources accepted from it, sorted.
	AllowedIPs []netip.Prefix
	// Keepalive is in seconds; 0 = none.
	Keepalive int
}

// Route is an entry of our routing table.
type Route struct {
	Device string
	To     netip.Prefix
	// Via is the next hop, taken as on link; invalid = the destination itself is on link.
	Via netip.Addr
	// MTU is in bytes; 0 = that of the device.
	MTU int
}

// Rule sends a family's packets to our routing table.
type Rule struct {
	IPv6     bool
	Priority int
	// Forwarded leaves out packets made in this namespace.
	Forwarded bool
}

// item is one thing of a State. Two items with the same key are the same thing, equal when they
// print the same.
type item interface {
	key() string
	fmt.Stringer
}

func (o Overlay) key() string  { return o.Name }
func (t Tunnel) key() string   { return t.Name }
func (s Setting) key() string  { return s.Device + " " + s.Name }
func (a Address) key() string  { return a.String() }
func (f Forward) key() string  { return f.Device + " " + f.MAC }
func (n Neighbor) key() string { return n.Device + " " + n.Addr.String() }
func (p Peer) key() string     { return p.Device + " " + p.PublicKey }
func (r Route) key() string    { return r.To.String() }
func (r Rule) key() string     { return r.String() }

func (o Overlay) String() string {
	return fmt.Sprintf("link %s vxlan id %d dstport %d local %s address %s mtu %d%s", o.Name, o.VNI, o.Port, o.Local, o.MAC, o.MTU, down(o.Down))
}

func (t Tunnel) String() string {
	return fmt.Sprintf("link %s wireguard public key %s listening port %d mtu %d%s", t.Name, t.PublicKey, t.ListenPort, t.MTU, down(t.Down))
}

func down(down bool) string {
	if down {
		return " down"
	}
	return ""
}

func (s Setting) String() string {
	return fmt.Sprintf("sysctl net/ipv4/conf/%s/%s = %d", s.Device, s.Name, s.Value)
}

func (a Address) String() string { return fmt.Sprintf("address %s dev %s", a.Prefix, a.Device) }

func (f Forward) String() string {
	var via string
	if f.Port != (Port{}) {
		via = fmt.Sprintf(" via %s lladdr %s", f.Port.Device, f.Port.MAC)
	}
	return fmt.Sprintf("fdb %s dev %s dst %s%s", f.MAC, f.Device, f.Outer, via)
}

func (n Neighbor) String() string {
	return fmt.Sprintf("neigh %s dev %s lladdr %s", n.Addr, n.Device, n.MAC)
}

func (p Peer) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "peer %s dev %s", p.PublicKey, p.Device)
	if p.Endpoint.IsValid() {
		fmt.Fprintf(&b, " endpoint %s", p.Endpoint)
	}
	fmt.Fprintf(&b, " allowed ips %s", joined(p.AllowedIPs))
	if p.Keepalive > 0 {
		fmt.Fprintf(&b, " keepalive %d", p.Keepalive)
	}
	return b.String()
}

func (r Route) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "route %s", r.To)
	if r.Via.IsValid() {
		fmt.Fprintf(&b, " via %s onlink", r.Via)
	}
	fmt.Fprintf(&b, " dev %s table %d", r.Device, RouteTable)
	if r.MTU > 0 {
		fmt.Fprintf(&b, " mtu %d", r.MTU)
	}
	return b.String()
}

func (r Rule) String() string {
	family, selector := "ipv4", "from all"
	if r.IPv6 {
		family = "ipv6"
	}
	if r.Forwarded {
		selector = "not from all iif lo"
	}
	return fmt.Sprintf("rule %s %d: %s lookup %d", family, r.Priority, selector, RouteTable)
}

// String prints the state as ip, wg and nft would, one thing per line.
func (s State) String() string {
	var b strings.Builder
	write(&b, s.Overlays)
	write(&b, s.Tunnels)
	write(&b, s.Settings)
	write(&b, s.Addresses)
	write(&b, s.Forwards)
	write(&b, s.Neighbors)
	write(&b, s.Peers)
	write(&b, s.Routes)
	write(&b, s.Rules)
	b.WriteString(s.Table)
	return b.String()
}

// Sorted orders every list, so that two equal states print the same.
func (s State) Sorted() State {
	s.Overlays = sorted(s.Overlays)
	s.Tunnels = sorted(s.Tunnels)
	s.Settings = sorted(s.Settings)
	s.Addresses = sorted(s.Addresses)
	s.Forwards = sorted(s.Forwards)
	s.Neighbors = sorted(s.Neighbors)
	s.Peers = sorted(s.Peers)
	s.Routes = sorted(s.Routes)
	s.Rules = sorted(s.Rules)
	return s
}

func sorted[T item](list []T) []T {
	return slices.SortedFunc(slices.Values(list), func(a, b T) int { return strings.Compare(a.String(), b.String()) })
}

func write[T item](b *strings.Builder, list []T) {
	for _, x := range list {
		fmt.Fprintln(b, x)
	}
}

func joined[T fmt.Stringer](list []T) string {
	words := make([]string, len(list))
	for i, x := range list {
		words[i] = x.String()
	}
	return strings.Join(words, ", ")
}
