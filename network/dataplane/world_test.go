// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/space"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/plan"
)

func TestMain(m *testing.M) { space.Main(m) }

// cluster is a cluster of namespaces with the data planes of its node and its gateways. All
// clusters have the pod CIDR 10.10.0.0/16 and the external CIDR 10.70.0.0/16.
type cluster struct {
	*space.Cluster
	node     end[plan.NodeStateInput]
	gateways []*end[plan.GatewayStateInput]
}

// end is one network namespace with a data plane and the function that plans its state.
type end[In any] struct {
	*space.Space
	plane *dataplane.Dataplane
	in    In
	plan  func(In) plan.State
	key   wgtypes.Key // of a gateway
	last  plan.State  // what reach found
}

func open[In any](t testing.TB, s *space.Space, decide func(In) plan.State) end[In] {
	t.Helper()
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	e := end[In]{Space: s, plan: decide, key: key}
	s.Do(func() { e.plane, err = dataplane.Open(dataplane.Options{PrivateKey: key, Dial: s.Dial}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.plane.Close)
	return e
}

// observe reads the state of the kernel.
func (e *end[In]) observe(t testing.TB) (have plan.State) {
	t.Helper()
	var err error
	e.Do(func() { have, err = e.plane.Observe(context.Background(), "eth0") })
	if err != nil {
		t.Fatalf("%s: %v", e.Name, err)
	}
	return have
}

// apply brings the kernel into the desired state and returns the changes.
func (e *end[In]) apply(t testing.TB, want plan.State) plan.Changes {
	t.Helper()
	changes := plan.Diff(e.observe(t), want)
	var err error
	e.Do(func() { err = e.plane.Apply(context.Background(), changes) })
	if err != nil {
		t.Fatalf("%s: %v\n%s", e.Name, err, changes)
	}
	return changes
}

func (e *end[In]) settle(t testing.TB) plan.Changes { t.Helper(); return e.apply(t, e.plan(e.in)) }

var under = plan.Underlay{Device: "eth0", MTU: 1500}

func newCluster(t testing.TB, internet *space.Space, name string, number int, gatewayIP string) *cluster {
	t.Helper()
	c := &cluster{Cluster: space.NewCluster(t, internet, name, number, gatewayIP)}
	c.node = open(t, c.Node, plan.NodeState)
	c.node.in = plan.NodeStateInput{
		Self:  plan.Member{Name: "n1", Outer: c.NodeIP, Overlay: netip.MustParseAddr("10.80.0.1"), CIDRs: prefixes("10.10.1.0/24")},
		Under: under, Nodes: []netip.Addr{c.NodeIP}, Port: 6091,
	}
	c.addGateway(t, c.Gateway, gatewayIP)
	return c
}

// addGateway makes a pod of the cluster a gateway without a peer.
func (c *cluster) addGateway(t testing.TB, pod *space.Space, addr string) *end[plan.GatewayStateInput] {
	t.Helper()
	g := open(t, pod, plan.GatewayState)
	g.in = plan.GatewayStateInput{
		Self: plan.Member{Name: addr, Outer: netip.MustParseAddr(addr), Overlay: netip.MustParseAddr(fmt.Sprintf("10.80.128.%d", len(c.gateways)+1)), MTU: 1340},
		Node: "n1", Under: under, Nodes: []plan.Member{c.node.in.Self}, Port: 6091,
		Pods: prefixes("10.10.0.0/16"), External: prefixes("10.70.0.0/16"),
	}
	c.gateways = append(c.gateways, &g)
	return &g
}

// dial connects the n-th gateway of a cluster, the client, to the first of another, the server.
// Each remaps the other's pods and external addresses to ranges of its own.
func (c *cluster) dial(n int, server *cluster, views, serverViews [2]string) {
	a, b := c.gateways[n], server.gateways[0]
	a.in.Remote, b.in.Remote = remaps(views), remaps(serverViews)
	for i, g := range []*end[plan.GatewayStateInput]{a, b} {
		own, peer := plan.TunnelAddresses(i == 1)
		g.in.Tunnel = plan.TunnelInput{
			Address: own, PeerAddress: peer, MTU: 1340, PublicKey: g.key.PublicKey().String(),
			PeerKey: []*end[plan.GatewayStateInput]{b, a}[i].key.PublicKey().String(),
		}
	}
	a.in.Tunnel.Endpoint = netip.AddrPortFrom(server.NodeIP, 51840)
	b.in.Tunnel.ListenPort = 51840
	c.announce()
	server.announce()
}

// announce tells node and gateways of a cluster about all its gateways.
func (c *cluster) announce() {
	c.node.in.Gateways = nil
	for _, g := range c.gateways {
		g.in.Self.CIDRs = nil
		for _, r := range g.in.Remote {
			g.in.Self.CIDRs = append(g.in.Self.CIDRs, r.Local)
		}
		c.node.in.Gateways = append(c.node.in.Gateways, g.in.Self)
	}
	for _, g := range c.gateways {
		g.in.Gateways = c.node.in.Gateways
	}
}

func (c *cluster) settle(t testing.TB) {
	t.Helper()
	c.node.settle(t)
	for _, g := range c.gateways {
		g.settle(t)
	}
}

// expose creates IP objects.
func (c *cluster) expose(list ...plan.Exposed) {
	for _, g := range c.gateways {
		g.in.Exposed = list
	}
}

func remaps(views [2]string) netv1beta1.Mappings {
	return netv1beta1.Mappings{
		{Remote: netip.MustParsePrefix("10.10.0.0/16"), Local: netip.MustParsePrefix(views[0])},
		{Remote: netip.MustParsePrefix("10.70.0.0/16"), Local: netip.MustParsePrefix(views[1])},
	}
}

func exposed(external, target string, masquerade bool) plan.Exposed {
	return plan.Exposed{External: netip.MustParseAddr(external), Target: netip.MustParseAddr(target), Masquerade: masquerade}
}

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, p := range list {
		out[i] = netip.MustParsePrefix(p)
	}
	return out
}

// waitFor waits until the peer's gateway answers through the tunnel. It returns the number of tries: one without an
// answer takes a second, and more on a busy machine.
func waitFor(t testing.TB, client *space.Space) (tries int) {
	t.Helper()
	space.Eventually(t, "tunnel", func() error {
		tries++
		_, err := client.Try("", "ping", "-c1", "-W1", "169.254.18.1")
		return err
	})
	return tries
}
