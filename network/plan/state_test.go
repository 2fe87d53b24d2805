// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/seed"
	"github.com/liqo-go/liqo/internal/story"
)

// process is the input of a role besides objects.
type process struct {
	// Role is gateway or fabric.
	Role string
	// Node is the name of the node it runs on.
	Node string
	// Pod is the address of a gateway's pod.
	Pod netip.Addr
	// Server tells the side of a gateway, Endpoint where a client dials.
	Server   bool
	Endpoint netip.AddrPort
	// TCP is the transport in place of UDP.
	TCP bool
	// PodDevices are a node's.
	PodDevices []string
	// Masquerade is a node's.
	Masquerade bool
	// Here are the gateways on the node, with their Ethernet addresses.
	Here map[string][]string
	// Listen are ports of further tunnels.
	Listen []int
	// Silent are numbers of tunnels.
	Silent []int
	// MTU of the device of the pod or node.
	MTU int
	// Passes is the longest packet that gets to the peer.
	Passes int
}

// TestKernelStates runs the stories of testdata/kernel: process.yaml is the input of the process,
// world.yaml holds the objects, state.txt the desired state of the kernel.
func TestKernelStates(t *testing.T) {
	story.Each(t, "testdata/kernel/*.txtar", func(t *testing.T, s *story.Story) {
		p := process{MTU: 1500}
		if err := yaml.UnmarshalStrict(s.Part("process.yaml"), &p); err != nil {
			t.Fatal(err)
		}
		world := section(t, s, "world.yaml")
		want, contents := stateOf(p, world)
		seed.Rand(t).Shuffle(len(world), func(i, j int) { world[i], world[j] = world[j], world[i] })
		shuffled, _ := stateOf(p, world)
		if diff := cmp.Diff(want.String(), shuffled.String()); diff != "" {
			t.Errorf("the order of the objects matters:\n%s", diff)
		}
		if c := Diff(want, want); !c.Empty() {
			t.Errorf("a state differs from itself:\n%s", c)
		}
		s.Expect(t, "state.txt", want.String()+problems(contents))
	})
}

// problems returns the problems that are reported to users.
func problems(contents []Content) string {
	var b strings.Builder
	for _, c := range contents {
		for _, p := range c.Problems {
			fmt.Fprintf(&b, "problem of %s %s/%s: %s\n", c.Resource, c.Namespace, c.Name, p)
		}
	}
	return b.String()
}

// stateOf returns the desired state with the contents of users.
func stateOf(p process, world []runtime.Object) (State, []Content) {
	host := Host{Category: p.Role, Names: []string{p.Node}}
	if p.Role == "gateway" {
		host.Names = []string{"milan"}
	}
	contents := host.Contents(of[*netv1beta1.FirewallConfiguration](world), of[*netv1beta1.RouteConfiguration](world))
	return ownState(p, world, contents).With(contents), contents
}

func ownState(p process, world []runtime.Object, contents []Content) State {
	fabrics, nodes, ips := of[*netv1beta1.InternalFabric](world), of[*netv1beta1.InternalNode](world), of[*ipamv1alpha1.IP](world)
	under := Underlay{Device: "eth0", MTU: p.MTU}
	if p.Role == "fabric" {
		in, ready := NodeObjects{Node: p.Node, Fabrics: fabrics, Nodes: nodes, IPs: ips}.Input(NodeStateInput{Under: under, Port: 6091, PodDevices: p.PodDevices, Masquerade: p.Masquerade})
		if !ready {
			return State{Table: "not ready\n"}
		}
		for i, g := range in.Gateways {
			in.Gateways[i].MACs, in.Gateways[i].Here = p.Here[g.Outer.String()]
		}
		return NodeState(in)
	}
	own, peer := TunnelAddresses(p.Server)
	in := GatewayStateInput{Self: Member{Outer: p.Pod}, Node: p.Node, Under: under, Port: 6091, Tunnel: TunnelInput{
		Address: own, PeerAddress: peer, MTU: 1340, Passes: p.Passes, PublicKey: "own", PeerKey: PeerKey(of[*netv1beta1.PublicKey](world)), Endpoint: p.Endpoint, TCP: p.TCP, Listen: p.Listen, Silent: p.Silent,
	}}
	if p.Server {
		in.Tunnel.ListenPort = 51840
	}
	in.Tracks = Track(contents)
	return GatewayState(GatewayObjects{
		Gateway:        types.NamespacedName{Namespace: "liqo-tenant-milan", Name: "milan"},
		Peer:           "milan",
		Configurations: of[*netv1beta1.Configuration](world),
		Fabrics:        fabrics, Nodes: nodes, IPs: ips,
	}.Input(in))
}

// section reads the objects of a file.
func section(t *testing.T, s *story.Story, name string) []runtime.Object {
	t.Helper()
	kinds := map[string]func() runtime.Object{
		"Configuration":  func() runtime.Object { return &netv1beta1.Configuration{} },
		"PublicKey":      func() runtime.Object { return &netv1beta1.PublicKey{} },
		"InternalFabric": func() runtime.Object { return &netv1beta1.InternalFabric{} },
		"InternalNode":   func() runtime.Object { return &netv1beta1.InternalNode{} },
		"IP":             func() runtime.Object { return &ipamv1alpha1.IP{} },

		"FirewallConfiguration": func() runtime.Object { return &netv1beta1.FirewallConfiguration{} },
		"RouteConfiguration":    func() runtime.Object { return &netv1beta1.RouteConfiguration{} },
	}
	var list []runtime.Object
	for _, doc := range strings.Split("\n"+string(s.Part(name)), "\n---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		var kind struct{ Kind string }
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil || kinds[kind.Kind] == nil {
			t.Fatalf("%s: kind %q, %v\n%s", name, kind.Kind, err, doc)
		}
		obj := kinds[kind.Kind]()
		if err := yaml.UnmarshalStrict([]byte(doc), obj); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, doc)
		}
		list = append(list, obj)
	}
	return list
}

// of returns the objects of one type.
func of[P runtime.Object](all []runtime.Object) []P {
	var list []P
	for _, obj := range all {
		if v, ok := obj.(P); ok {
			list = append(list, v)
		}
	}
	return list
}

// TestChangesLeadToTheDesiredState: changes lead from any state to any other, and then there are none.
func TestChangesLeadToTheDesiredState(t *testing.T) {
	for n, r := range seed.Samples(t, 300) {
		have, want := randomState(r), randomState(r)
		changes := Diff(have, want)
		got := State{
			Overlays: changed(have.Overlays, changes.Overlays), Tunnels: changed(have.Tunnels, changes.Tunnels),
			Settings: changed(have.Settings, changes.Settings), Addresses: changed(have.Addresses, changes.Addresses),
			Forwards: changed(have.Forwards, changes.Forwards), Neighbors: changed(have.Neighbors, changes.Neighbors),
			Peers: changed(have.Peers, changes.Peers), Routes: changed(have.Routes, changes.Routes), Rules: changed(have.Rules, changes.Rules),
			Table: have.Table,
		}
		if changes.Table != nil {
			got.Table = changes.Table.New
		}
		got.Quotes = have.Quotes
		if changes.Quotes != nil {
			got.Quotes = changes.Quotes.New
		}
		if again := Diff(got, want); !again.Empty() {
			t.Fatalf("sample %d: after\n%s\nthere is still to do\n%s", n, changes, again)
		}
		if changes.Empty() != (Diff(have, want).String() == "") {
			t.Fatalf("sample %d: empty changes print something", n)
		}
	}
}

// changed returns a list after changes.
func changed[T item](list []T, changes []Change[T]) []T {
	m := map[any]T{}
	for _, x := range list {
		m[x.key()] = x
	}
	for _, c := range changes {
		if c.Old != nil {
			delete(m, (*c.Old).key())
		}
		if c.New != nil {
			m[(*c.New).key()] = *c.New
		}
	}
	var out []T
	for _, x := range m {
		out = append(out, x)
	}
	return out
}

// randomState returns the state of a random gateway or node.
func randomState(r *rand.Rand) State {
	random := func(format string) netip.Prefix { return netip.MustParsePrefix(fmt.Sprintf(format, r.IntN(4))) }
	member := func(i int) Member {
		return Member{
			Name: fmt.Sprint("m", i), Outer: random("192.168.%d.0/24").Addr(), Overlay: netip.AddrFrom4([4]byte{10, 80, 0, byte(i)}),
			CIDRs: []netip.Prefix{random("10.10.%d.0/24"), random("fd00:%d::/64")},
		}
	}
	members := []Member{member(1), member(2), member(3)}[:r.IntN(4)]
	if r.IntN(2) == 0 {
		return NodeState(NodeStateInput{Self: member(9), Under: Underlay{"eth0", 1500}, Gateways: members, Port: 6091})
	}
	own, peer := TunnelAddresses(r.IntN(2) == 0)
	in := GatewayStateInput{
		Self: member(9), Under: Underlay{"eth0", 1500}, Nodes: members, Pods: []netip.Prefix{random("10.10.%d.0/24")}, Port: 6091,
		Remote: netv1beta1.Mappings{{Remote: random("10.20.%d.0/24"), Local: random("10.30.%d.0/24")}},
		Tunnel: TunnelInput{Address: own, PeerAddress: peer, MTU: 1340, PeerKey: random("10.0.0.%d/32").String()},
	}
	return GatewayState(in)
}

// TestExternalAddressesThatMove: connections to external addresses of IP objects end if their
// target changed or is gone; others do not.
func TestExternalAddressesThatMove(t *testing.T) {
	addr := netip.MustParseAddr
	exposure := func(leads ...string) Exposure {
		own, peer := TunnelAddresses(true)
		in := GatewayStateInput{
			Under: Underlay{"eth0", 1500}, Port: 6091, External: prefixList("10.70.0.0/16", "fd00::/64"),
			Tunnel: TunnelInput{Address: own, PeerAddress: peer, MTU: 1340},
		}
		for i := 0; i < len(leads); i += 2 {
			in.Exposed = append(in.Exposed, Exposed{External: addr(leads[i]), Target: addr(leads[i+1])})
		}
		return GatewayState(in).Exposure
	}
	old := strings.Fields(
		"10.70.0.1 10.0.0.1 10.70.0.2 10.0.0.2 10.70.0.3 10.0.0.3 fd00::1 fd01::1 fd00::2 fd01::2")
	known := append(slices.Clone(old), "10.70.0.4", "10.70.0.4", // it led nowhere
		"10.70.0.0", "10.0.0.7", "fd00::", "fd01::7", // sources that are not announced
		"10.10.0.1", "10.10.0.1", "10.20.0.1", "192.0.2.1") // no external addresses
	ofUsers := []string{"10.70.0.8", "10.0.0.8"} // translated by a rule of theirs
	before := exposure("10.70.0.0", "10.0.0.5").Targets
	if exposure("10.70.0.0", "10.0.0.5", "10.70.0.1", "10.0.0.1").Stale(before, addr("10.70.0.0"), addr("10.0.0.7")) {
		t.Error("connections of sources that are not announced end when another address moves")
	}
	for _, c := range []struct {
		new  Exposure
		want string
	}{
		{exposure(old...), "[]"},
		{
			exposure(strings.Fields(
				"10.70.0.1 10.0.0.1 10.70.0.2 10.0.0.9 10.70.0.4 10.0.0.3 fd00::1 fd01::2 fd00::2 fd01::2")...),
			"[10.70.0.2 10.70.0.3 10.70.0.4 fd00::1]",
		},
		{exposure("10.70.0.4", "10.0.0.9"), "[10.70.0.1 10.70.0.2 10.70.0.3 10.70.0.4 fd00::1 fd00::2]"},
		{exposure(), "[10.70.0.1 10.70.0.2 10.70.0.3 fd00::1 fd00::2]"},
	} {
		ends := func(before map[netip.Addr]netip.Addr, known []string) string {
			var ended []netip.Addr
			for i := 0; i < len(known); i += 2 {
				if c.new.Stale(before, addr(known[i]), addr(known[i+1])) {
					ended = append(ended, addr(known[i]))
				}
			}
			slices.SortFunc(ended, netip.Addr.Compare)
			return fmt.Sprint(ended)
		}
		if got := ends(exposure(old...).Targets, append(known, ofUsers...)); got != c.want {
			t.Errorf("with %v connections to %s end, want %s", c.new, got, c.want)
		}
		if got := ends(nil, known); got != c.want {
			t.Errorf("with %v after another process connections to %s end, want %s", c.new, got, c.want)
		}
	}
}

// TestTranslationIsABijection: translating an address and back returns the same address. Host bits
// are kept, and the result lies in the prefix.
func TestTranslationIsABijection(t *testing.T) {
	r := seed.Rand(t)
	for range 2000 {
		f := families()[r.IntN(2)]
		real, view := randomPrefix(r, f.six), netip.Prefix{}
		view = netip.PrefixFrom(randomPrefix(r, f.six).Addr(), real.Bits()).Masked()
		addr := randomAddr(r, view)
		there := evaluate(t, f.rewrite("daddr", real), addr)
		back := evaluate(t, f.rewrite("saddr", view), there)
		if !real.Contains(there) || back != addr {
			t.Fatalf("%s seen as %s: %s became %s and came back as %s", real, view, addr, there, back)
		}
	}
}

func randomPrefix(r *rand.Rand, six bool) netip.Prefix {
	if six {
		b := [16]byte{0xfd}
		for i := 1; i < 16; i++ {
			b[i] = byte(r.IntN(256))
		}
		return netip.PrefixFrom(netip.AddrFrom16(b), 8+r.IntN(121)).Masked()
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))}), 8+r.IntN(25)).Masked()
}

// randomAddr returns an address of a prefix.
func randomAddr(r *rand.Rand, p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		if r.IntN(2) == 0 {
			b[bit/8] |= 0x80 >> (bit % 8)
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// evaluate computes "… & mask | bits" as nft does.
func evaluate(t *testing.T, text string, addr netip.Addr) netip.Addr {
	t.Helper()
	words := strings.Fields(text)
	mask, bits := netip.MustParseAddr(words[len(words)-3]).AsSlice(), netip.MustParseAddr(words[len(words)-1]).AsSlice()
	out := addr.AsSlice()
	for i := range out {
		out[i] = out[i]&mask[i] | bits[i]
	}
	a, _ := netip.AddrFromSlice(out)
	return a
}
