// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// State describes Liqo's desired or observed configuration in the kernel of one network namespace.
// It lists only Liqo's own objects: devices and their settings, the routing table, the rule and the
// nft table. The zero value is a namespace without Liqo.
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
	// Exposure describes how the table translates external addresses. It is part of a desired state
	// only.
	Exposure Exposure
	// Tables are nft tables of users.
	Tables []Table
	// Quotes are rules in an nft table of their own.
	Quotes []Quote
}

// Exposure describes the connections that the nft table translates between external addresses and
// their targets.
type Exposure struct {
	// Targets maps external addresses of IP objects to the addresses they are translated to.
	Targets map[netip.Addr]netip.Addr
	// Ranges hold all external addresses. The first address of a range may stand for sources that
	// are not announced.
	Ranges netv1beta1.Ranges
}

// Stale reports whether the table no longer translates an external address to target, because it
// has another target now, or none. before holds the targets of the former table. If it is nil they
// are unknown, and every external address may have had a target.
func (x Exposure) Stale(before map[netip.Addr]netip.Addr, external, target netip.Addr) bool {
	now, exposed := x.Targets[external]
	switch {
	case now == target || !exposed && external == target:
		return false
	case before != nil:
		return before[external] != now
	}
	unknown := slices.ContainsFunc(x.Ranges, func(p netip.Prefix) bool { return First(p) == external })
	return !unknown && x.Ranges.Contains(external)
}

// Overlay is a VXLAN device without learning.
type Overlay struct {
	Name string
	// VNI and Port identify the frames; the port is UDP.
	VNI  int
	Port int
	// Local is the source address of the frames.
	Local netip.Addr
	MAC   string
	MTU   int
	// Down is observed only, and never desired.
	Down bool
}

// Tunnel is a WireGuard device. Its private key is not part of a State.
type Tunnel struct {
	Name string
	MTU  int
	// ListenPort is a port of the transport; 0 = any port, or no port with TCP.
	ListenPort int
	// TCP reports whether packets are carried over TCP in place of UDP. Only userspace WireGuard in
	// this process supports it.
	TCP bool
	// PublicKey is the public key of this gateway, in base64.
	PublicKey string
	// Down is observed only, and never desired.
	Down bool
}

// Setting is one IPv4 sysctl of a device. Settings are never reverted, because the kernel has no
// unset state for them.
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

// Address is an address of one of Liqo's devices.
type Address struct {
	Device string
	Prefix netip.Prefix
}

// Forward sends frames for a MAC address to an outer address: a static VXLAN entry.
type Forward struct {
	Device string
	MAC    string
	Outer  netip.Addr
	// Port is the bridge port that frames are sent to directly; the zero value = frames follow the
	// route to the outer address.
	Port Port
}

// Port is a port of a bridge with a pod behind it. A bridge cuts large frames into single segments
// in software, because it cannot pass on the offload of nested packets (seen on Linux 6.18: 50
// segments of 64 KB). The port itself accepts them whole.
type Port struct {
	Device string
	// MAC is the Ethernet address of the pod.
	MAC string
}

// Neighbor is a permanent neighbour entry.
type Neighbor struct {
	Device string
	Addr   netip.Addr
	MAC    string
}

// Peer is the remote end of a tunnel.
type Peer struct {
	Device string
	// PublicKey is in base64 and identifies the peer.
	PublicKey string
	// Endpoint is the address the peer is reached at; invalid = learnt from its packets.
	Endpoint netip.AddrPort
	// AllowedIPs are the source ranges accepted from the peer, sorted.
	AllowedIPs []netip.Prefix
	// Keepalive is in seconds; 0 = none.
	Keepalive int
}

// Route is an entry of Liqo's routing table, or of a user's.
type Route struct {
	Device string
	To     netip.Prefix
	// Via is the next hop, which counts as on link in Liqo's table; invalid = the destination is on
	// link.
	Via netip.Addr
	// MTU is in bytes; 0 = the MTU of the device.
	MTU int
	// Throw ends the lookup in this table, so that the next rule decides.
	Throw bool
	// Table is that of a further tunnel or a user's; 0 = ours. What follows is used only in users'.
	Table int
	// Source is the source address of packets made in this namespace; invalid = the kernel chooses.
	Source netip.Addr
	OnLink bool
	// Scope applies to IPv4 only; empty = global.
	Scope string
}

// Rule sends packets of one address family to Liqo's routing table, or to a user's.
type Rule struct {
	IPv6     bool
	Priority int
	// Forwarded excludes packets made in this namespace.
	Forwarded bool
	// ICMP excludes packets of all other protocols.
	ICMP bool
	// Unmarked excludes packets with this mark; 0 = excludes none.
	Unmarked uint32
	// Table is that of a further tunnel or a user's; 0 = ours. What follows is used only there.
	Table int
	// From and To match addresses, In and Out match devices, Mark matches a packet's mark; zero =
	// any.
	From, To netip.Prefix
	In, Out  string
	Mark     uint32
}

// Table is an nft table.
type Table struct {
	// Family is the address family, as nft names it.
	Family, Name string
	// Text is the table as nft prints it, without counters.
	Text string
}

// Quote translates addresses of a prefix that ICMP errors quote. It translates the destination in
// errors that arrive on a device, and the source in errors that leave through it. IPv4 only.
type Quote struct {
	Device   string
	Inbound  bool
	From, To netip.Prefix
}

// item is one element of a State. Items with the same key are the same element, and are equal if
// all their fields are. Keys are comparable values and not text: a namespace with 100 peers has
// hundreds of items, which every reconcile compares.
type item interface {
	key() any
	fmt.Stringer
}

// pair is the key of an item that has a name on a device.
type pair [2]string

// tableTo is the key of a route. It is not text, because there may be thousands of routes.
type tableTo struct {
	table int
	to    netip.Prefix
}

func (o Overlay) key() any  { return o.Name }
func (t Tunnel) key() any   { return t.Name }
func (s Setting) key() any  { return pair{s.Device, s.Name} }
func (a Address) key() any  { return a }
func (f Forward) key() any  { return pair{f.Device, f.MAC} }
func (n Neighbor) key() any { return Neighbor{Device: n.Device, Addr: n.Addr} }
func (p Peer) key() any     { return pair{p.Device, p.PublicKey} }
func (r Route) key() any    { return tableTo{r.Table, r.To} }
func (r Rule) key() any     { return r }
func (q Quote) key() any    { return q }
func (t Table) key() any    { return pair{t.Family, t.Name} }

func (o Overlay) String() string {
	return fmt.Sprintf("link %s vxlan id %d dstport %d local %s address %s mtu %d%s",
		o.Name, o.VNI, o.Port, o.Local, o.MAC, o.MTU, down(o.Down))
}

func (t Tunnel) String() string {
	var transport string
	if t.TCP {
		transport = " over tcp"
	}
	return fmt.Sprintf("link %s wireguard%s public key %s listening port %d mtu %d%s",
		t.Name, transport, t.PublicKey, t.ListenPort, t.MTU, down(t.Down))
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
	words := []string{"route", r.To.String()}
	if r.Throw {
		words = []string{"route", "throw", r.To.String()}
	}
	if r.Via.IsValid() {
		words = append(words, "via", r.Via.String())
	}
	if r.Via.IsValid() && !IsUserTable(r.Table) || r.OnLink {
		words = append(words, "onlink")
	}
	if r.Device != "" {
		words = append(words, "dev", r.Device)
	}
	words = append(words, "table", strconv.Itoa(tableNumber(r.Table)))
	if r.MTU > 0 {
		words = append(words, "mtu", strconv.Itoa(r.MTU))
	}
	if r.Source.IsValid() {
		words = append(words, "src", r.Source.String())
	}
	if r.Scope != "" {
		words = append(words, "scope", r.Scope)
	}
	return strings.Join(words, " ")
}

func (r Rule) String() string {
	family, from := "ipv4", "from all"
	if r.IPv6 {
		family = "ipv6"
	}
	if r.Forwarded {
		from = "not from all iif lo"
	}
	if r.Unmarked != 0 {
		from = fmt.Sprintf("not from all fwmark %#x", r.Unmarked)
	}
	if r.From.IsValid() {
		from = "from " + r.From.String()
	}
	words := []string{"rule", family, strconv.Itoa(r.Priority) + ":", from}
	if r.ICMP {
		words = append(words, "ipproto", "icmp")
	}
	if r.To.IsValid() {
		words = append(words, "to", r.To.String())
	}
	if r.Mark != 0 {
		words = append(words, fmt.Sprintf("fwmark %#x", r.Mark))
	}
	if r.In != "" {
		words = append(words, "iif", r.In)
	}
	if r.Out != "" {
		words = append(words, "oif", r.Out)
	}
	return strings.Join(append(words, "lookup", strconv.Itoa(tableNumber(r.Table))), " ")
}

// tableNumber returns the number of a routing table as the kernel knows it; 0 = RouteTable.
func tableNumber(n int) int {
	if n == 0 {
		return RouteTable
	}
	return n
}

func (t Table) String() string { return t.Text }

func (q Quote) String() string {
	way := "to"
	if q.Inbound {
		way = "from"
	}
	return fmt.Sprintf("quoted %s %s %s %s", way, q.Device, q.From, q.To)
}

// ParseQuote parses the text that Quote.String returns.
func ParseQuote(text string) (Quote, error) {
	words := strings.Fields(text)
	if len(words) != 5 || words[0] != "quoted" {
		return Quote{}, fmt.Errorf("%q is no quote", text)
	}
	from, err := netip.ParsePrefix(words[3])
	if err != nil {
		return Quote{}, err
	}
	to, err := netip.ParsePrefix(words[4])
	return Quote{Device: words[2], Inbound: words[1] == "from", From: from, To: to}, err
}

// String prints the state as ip, wg and nft would, one item per line, each kind sorted. Equal
// states print the same text.
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
	write(&b, s.Quotes)
	for _, text := range lines(s.Tables) {
		b.WriteString(text)
	}
	return b.String()
}

func write[T item](b *strings.Builder, list []T) {
	for _, line := range lines(list) {
		fmt.Fprintln(b, line)
	}
}

// lines returns the text of all items, sorted.
func lines[T item](list []T) []string {
	out := make([]string, len(list))
	for i, x := range list {
		out[i] = x.String()
	}
	slices.Sort(out)
	return out
}

func joined[T fmt.Stringer](list []T) string {
	words := make([]string, len(list))
	for i, x := range list {
		words[i] = x.String()
	}
	return strings.Join(words, ", ")
}

// RefusedFor is the minimum time for which the kernel refuses the desired state before users are
// told: a device may vanish between two steps.
const RefusedFor = 3 * time.Second

// Traffic holds the counters of a tunnel's peer.
type Traffic struct {
	// Received and Sent are in bytes since the peer was added.
	Received, Sent int64
	// Handshake is the time of the last handshake; zero if there was none yet.
	Handshake time.Time
	// Endpoint is the current endpoint of the peer; invalid if not known.
	Endpoint netip.AddrPort
	// Port is the local port at which the peer's packets arrive.
	Port int
}

// Calls counts the handshakes that reached a tunnel and were rejected by WireGuard.
type Calls struct {
	// Misaddressed counts handshakes made for a key other than ours, Strange those made by a key
	// of no peer.
	Misaddressed, Strange int64
	// Replayed counts handshakes older than one that was accepted.
	Replayed int64
}
