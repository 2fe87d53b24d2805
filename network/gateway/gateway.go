// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package gateway is the role that carries the traffic of one peer: the tunnel, the translation
// of the peer's addresses, the ways back to the nodes, and the state of the connection. What it
// wants of the kernel is decided in network/plan and done by network/daemon; here are only the
// objects it reads, the pings through the tunnel, and the Connection it writes. Start at Run.
package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/daemon"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/gateway/plan"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// Options of a gateway; the flags of the same names say what they mean.
type Options struct {
	Name, Namespace, RemoteClusterID string
	// UID of the GatewayServer or GatewayClient.
	UID               types.UID
	NodeName, PodName string
	// PodIP is the pod's own address; invalid = that of the device of the default route.
	PodIP  netip.Addr
	Server bool
	// Tunnel.
	MTU, ListenPort int
	// InterfaceIP is our address in the tunnel; invalid = the default of the mode.
	InterfaceIP netip.Prefix
	// EndpointAddresses of the server are IP addresses or DNS names; a client tries the next one while it
	// gets no answer.
	EndpointAddresses []string
	EndpointPort      int
	// MoreListenPorts of a server and MoreEndpointPorts of a client add a tunnel each.
	MoreListenPorts, MoreEndpointPorts []int
	DNSCheckInterval                   time.Duration
	KeysDir                            string
	// Userspace forces WireGuard inside this process, and TCP its packets over TCP.
	Userspace, TCP bool
	// OverlayPort is UDP.
	OverlayPort int
	// OverlaySources are further addresses that frames of the overlay come from.
	OverlaySources []netip.Prefix
	// Pings.
	PingEnabled                   bool
	PingPort                      int
	Ping                          plan.PingPolicy
	LatencyInterval               time.Duration
	MetricsAddress, HealthAddress string
	// LeaderElection lets one of several replicas act; without it there is one.
	LeaderElection bool
	Lease          LeaseTimes
}

// gateway is one running gateway.
type gateway struct {
	Options
	*daemon.Daemon
	// plane reads and dials the tunnels.
	plane          *dataplane.Dataplane
	client         daemon.API
	configurations *daemon.Objects[netv1beta1.Configuration]
	keys           *daemon.Objects[netv1beta1.PublicKey]
	fabrics        *daemon.Objects[netv1beta1.InternalFabric]
	nodes          *daemon.Objects[netv1beta1.InternalNode]
	ips            *daemon.Objects[ipamv1alpha1.IP]
	// shown is the Connection as the API server shows it.
	shown *daemon.Objects[netv1beta1.Connection]

	own    wgtypes.Key
	dialer *dialer
	pinger *pinger
	// further are those of the tunnels after the first, in their order.
	further []*pinger
	// peer is the public key of the peer in base64, "" = not known yet.
	peer atomic.Value
	// passes is the longest packet that gets to the peer, in bytes; 0 = not known.
	passes atomic.Int64
	// rules are users' for this gateway.
	rules *daemon.Contents
	// reported is what the Connection said last; nil = nothing yet.
	reported atomic.Pointer[netv1beta1.ConnectionStatusValue]
	// active reports whether this replica holds the lease; renewed is when the lease was last read or
	// renewed, nil = never.
	active  atomic.Bool
	renewed atomic.Pointer[time.Time]
	// fenced reports that this replica gave up the tunnel, because the peer is connected to a later
	// leader while the lease cannot be read.
	fenced atomic.Bool
	// leads tells whether this pod has the tunnel, handing whether a server that had it is still
	// heard by its client; a server's turned gets a message when it has or loses the tunnel.
	leads, handing atomic.Bool
	turned         chan struct{}
	// other is the address of the pod that has the tunnel, or had it before us; nil = none was seen.
	other atomic.Pointer[netip.Addr]
	// ending is closed when the pod is told to end.
	ending <-chan struct{}
	// relays are those of a server that hands over; nil = none.
	relays    atomic.Pointer[[]kernel.Relay]
	protected plan.Protected
}

// +kubebuilder:rbac:groups=networking.liqo.io,resources=internalfabrics;internalnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations;publickeies,namespace=tenant,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=firewallconfigurations;routeconfigurations,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=firewallconfigurations/status;routeconfigurations/status,verbs=patch

// Run runs a gateway until the context ends and it is no longer needed. What it programmed stays: a
// restart of the container finds it in the pod's network namespace.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	o.Ping.Once = !o.PingEnabled
	key, err := readKey(o.KeysDir)
	if err != nil {
		return err
	}
	client, err := daemon.Connect(cfg)
	if err != nil {
		return err
	}
	plane, err := dataplane.Open(dataplane.Options{PrivateKey: key, Userspace: o.Userspace})
	if err != nil {
		return err
	}
	own, other := o.addresses()
	g := &gateway{Options: o, plane: plane, client: client, own: key.PublicKey(), dialer: newDialer(o)}
	g.peer.Store("")
	g.turned = make(chan struct{}, 1)
	if !o.LeaderElection {
		g.take(ctx, true)
	}
	g.pinger = newPinger(o, own.Addr(), other)
	for n := range len(o.devices()) - 1 {
		own, other := kernel.FurtherEnds(own, other, n+1)
		p := newPinger(o, own.Addr(), other)
		p.late, p.moved, p.turn, p.superseded = g.pinger.late, g.pinger.moved, g.pinger.turn, g.pinger.superseded
		g.further = append(g.further, p)
	}
	g.Daemon = daemon.New(daemon.Role{
		Name:           "gateway",
		Sources:        g.watch(),
		Want:           g.want,
		Tasks:          g.tasks(ctx),
		Contents:       g.contents(),
		MetricsAddress: o.MetricsAddress, HealthAddress: o.HealthAddress, Metrics: g.metrics,
	}, plane)
	g.ending = ctx.Done()
	life, end := g.outlive(ctx)
	defer end()
	return g.Run(life)
}

// watch begins to copy the objects.
func (g *gateway) watch() []daemon.Source {
	peer := daemon.Selection{Namespace: g.Namespace, Labels: api.LabelRemoteClusterID + "=" + g.RemoteClusterID}
	g.configurations = daemon.Watch[netv1beta1.Configuration](g.client.Networking, "configurations", peer)
	g.keys = daemon.Watch[netv1beta1.PublicKey](g.client.Networking, "publickeies", peer)
	g.fabrics = daemon.Watch[netv1beta1.InternalFabric](g.client.Networking, "internalfabrics", daemon.Selection{})
	g.nodes = daemon.Watch[netv1beta1.InternalNode](g.client.Networking, "internalnodes", daemon.Selection{})
	g.ips = daemon.Watch[ipamv1alpha1.IP](g.client.IPAM, "ips", daemon.Selection{})
	g.shown = daemon.Watch[netv1beta1.Connection](g.client.Networking, "connections", peer)
	return []daemon.Source{g.configurations, g.keys, g.fabrics, g.nodes, g.ips}
}

// contents are users' rules for this gateway. Only the replica that carries the traffic says what
// became of them.
func (g *gateway) contents() *daemon.Contents {
	g.rules = daemon.WatchContents(g.client, daemon.ContentsOptions{
		Host: kernel.Host{Category: api.CategoryGateway, Names: []string{g.Name, g.RemoteClusterID}},
		Name: g.PodName, Writer: func(string) string { return "liqo/gateway-" + string(g.UID) },
		Silent: func() bool { return g.PodName == "" || !g.leads.Load() },
	})
	return g.rules
}

// tasks are what runs beside; told is the context that tells the gateway to end, before it does.
func (g *gateway) tasks(told context.Context) []daemon.Task {
	tasks := []daemon.Task{g.keepConnection, g.keepHandingOver, g.returnMemory, g.pinger.run}
	for _, p := range g.further {
		tasks = append(tasks, p.run)
	}
	if len(g.further) > 0 && g.PingEnabled {
		tasks = append(tasks, g.keepSpread)
	}
	if !g.Server {
		tasks = append(tasks, g.keepDialled)
	}
	if g.dialer.named() {
		tasks = append(tasks, g.keepResolved)
	}
	if g.LeaderElection {
		tasks = append(tasks, func(ctx context.Context) error { return g.takeTurns(ctx, told) }, g.keepFenced)
	}
	return tasks
}

// addresses are ours and the peer's in the tunnel.
func (o Options) addresses() (netip.Prefix, netip.Addr) {
	own, peer := kernel.TunnelAddresses(o.Server)
	if o.InterfaceIP.IsValid() && o.InterfaceIP != own {
		own, peer = o.InterfaceIP, o.InterfaceIP.Addr().Next()
		if !o.Server {
			peer = o.InterfaceIP.Addr().Prev()
		}
	}
	return own, peer
}

// want plans from the objects.
func (g *gateway) want(ctx context.Context) (kernel.State, bool, error) {
	in, err := g.known()
	if err != nil {
		return kernel.State{}, false, err
	}
	in.Tunnel.Silent = g.silent(time.Now())
	in.Tracks = g.rules.Track()
	in = g.objects().Input(in)
	var wait time.Duration
	if in.Protected, wait = g.protected.Follow(in.Protected, time.Now()); wait > 0 {
		time.AfterFunc(wait, g.Look)
	}
	if before := g.peer.Swap(in.Tunnel.PeerKey); before != in.Tunnel.PeerKey {
		g.begin(before != "")
	}
	named := g.named(in.Self.Outer)
	if !named {
		g.fenced.Store(false) // the InternalFabric says so, too
	}
	g.lead(ctx, named && !g.fenced.Load())
	switch {
	case g.Server:
		if relays := g.relays.Load(); relays != nil {
			in.Relays = *relays
		}
	case g.leads.Load():
		in.Tunnel.Endpoint = g.dialer.endpoint()
	default: // two that dial with one key would take the tunnel from each other
		in.Tunnel.PeerKey = ""
	}
	return kernel.GatewayState(in), true, nil
}

// devices are those of all tunnels.
func (o Options) devices() []string {
	out := []string{api.TunnelInterface(0)}
	for range max(len(o.MoreListenPorts), len(o.MoreEndpointPorts)) {
		out = append(out, api.TunnelInterface(len(out)))
	}
	return out
}

// known is what the process knows without objects.
func (g *gateway) known() (kernel.GatewayStateInput, error) {
	own, peer := g.addresses()
	in := kernel.GatewayStateInput{Node: g.NodeName, Port: g.OverlayPort, Sources: g.OverlaySources}
	var err error
	g.With(func(d *dataplane.Dataplane) { in.Under, in.Self.Outer, err = d.Underlay(g.PodIP) })
	if err != nil {
		return in, err
	}
	in.Tunnel = kernel.TunnelInput{
		Address: own, PeerAddress: peer, MTU: g.MTU, Passes: int(g.passes.Load()), ListenPort: g.ListenPort, Listen: g.MoreListenPorts, Dial: g.MoreEndpointPorts,
		TCP: g.TCP, PublicKey: g.own.String(),
	}
	return in, nil
}

func (g *gateway) objects() kernel.GatewayObjects {
	return kernel.GatewayObjects{
		Gateway:        types.NamespacedName{Namespace: g.Namespace, Name: g.Name},
		Peer:           g.RemoteClusterID,
		Configurations: g.configurations.List(),
		PublicKeys: slices.DeleteFunc(g.keys.List(), func(k netv1beta1.PublicKey) bool {
			return k.Labels[api.LabelGatewayResource] != api.True
		}),
		Fabrics: g.fabrics.List(), Nodes: g.nodes.List(), IPs: g.ips.List(),
	}
}

// object is one in JSON.
type object = map[string]any

// merge sends a merge patch.
func merge(ctx context.Context, request *rest.Request, patch object) error {
	text, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	return request.Body(text).Do(ctx).Error()
}
