// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package gateway implements the role that carries the traffic of one peer: the tunnel, the
// translation of addresses, the routes back to the nodes, and the state of the connection.
//
//	API objects, lease, pings, counters, DNS, probes ─events─▶ plan.Sight ─▶ plan.Gateway
//	     ▲                                                                       │
//	     └── results ── actions (pings, redials, lookups, writes) ◀──────────────┤
//	         network/daemon, which makes the kernel as network/plan says ◀─Want──┘
//
// One goroutine decides, see decide, and never waits. The code starts at Run.
package gateway

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/daemon"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/gateway/plan"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// event updates what the process observed.
type event func(*plan.Sight)

// gateway is one running gateway.
type gateway struct {
	plan.Options
	*daemon.Daemon
	client         daemon.API
	configurations *daemon.Objects[netv1beta1.Configuration]
	keys           *daemon.Objects[netv1beta1.PublicKey]
	fabrics        *daemon.Objects[netv1beta1.InternalFabric]
	nodes          *daemon.Objects[netv1beta1.InternalNode]
	ips            *daemon.Objects[ipamv1alpha1.IP]
	connections    *daemon.Objects[netv1beta1.Connection]
	// rules are those of users for this gateway.
	rules   *daemon.Contents
	key     wgtypes.Key
	tunnels *tunnels
	// trips holds round trips of pings in the first tunnel, in microseconds.
	trips *daemon.Histogram

	// A decision follows each event and each notification: objects or the Connection changed, or the
	// server asked this client to dial again.
	events                     chan event
	objects, connection, moved chan struct{}
	// end ends the process.
	end context.CancelFunc

	mu sync.Mutex
	// state is that of the last decision. decided is closed after the first one that considered all
	// objects.
	state   plan.State
	decided chan struct{}

	// Only want uses these: the device and the address of the pod, the revision planned last, and the
	// addresses of pods that peers may not reach.
	under     kernel.Underlay
	own       netip.Addr
	revision  int
	protected plan.Protected
}

// +kubebuilder:rbac:groups=networking.liqo.io,resources=internalfabrics;internalnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations;publickeies,namespace=tenant,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=firewallconfigurations;routeconfigurations,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=firewallconfigurations/status;routeconfigurations/status,verbs=patch

// Run runs a gateway until the context ends and it is no longer needed. What it programmed stays: a
// restart of the container finds it in the pod's network namespace.
func Run(ctx context.Context, cfg *rest.Config, o plan.Options) error {
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
	g := newGateway(o, client)
	g.key = key.PublicKey()
	g.tunnels = &tunnels{Options: o, plane: plane, work: make(chan func(), workLimit)}
	g.Daemon = daemon.New(daemon.Role{
		Name:           "gateway",
		Sources:        []daemon.Source{g.configurations, g.keys, g.fabrics, g.nodes, g.ips},
		ObjectChanged:  func() { notify(g.objects) },
		Want:           g.want,
		Looked:         g.looked,
		Tasks:          g.tasks(ctx),
		Contents:       g.rules,
		MetricsAddress: o.MetricsAddress, HealthAddress: o.HealthAddress, Metrics: g.metrics,
	}, plane)
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g.end = end
	return g.Run(life)
}

// newGateway returns a gateway that does not run yet.
func newGateway(o plan.Options, client daemon.API) *gateway {
	peer := daemon.Selection{Namespace: o.Namespace, Labels: api.LabelRemoteClusterID + "=" + o.RemoteClusterID}
	all := daemon.Selection{}
	g := &gateway{
		Options: o, client: client,
		configurations: daemon.Watch[netv1beta1.Configuration](client.Networking, "configurations", peer),
		keys:           daemon.Watch[netv1beta1.PublicKey](client.Networking, "publickeies", peer),
		fabrics:        daemon.Watch[netv1beta1.InternalFabric](client.Networking, "internalfabrics", all),
		nodes:          daemon.Watch[netv1beta1.InternalNode](client.Networking, "internalnodes", all),
		ips:            daemon.Watch[ipamv1alpha1.IP](client.IPAM, "ips", all),
		connections:    daemon.Watch[netv1beta1.Connection](client.Networking, "connections", peer),
		trips:          daemon.NewHistogram(latencyLimits()...),
		events:         make(chan event, 64),
		objects:        make(chan struct{}, 1),
		connection:     make(chan struct{}, 1),
		moved:          make(chan struct{}, 1),
		decided:        make(chan struct{}),
	}
	// Only the replica that carries the traffic reports the result of users' rules.
	g.rules = daemon.WatchContents(client, daemon.ContentsOptions{
		Host: kernel.Host{Category: api.CategoryGateway, Names: []string{o.Name, o.RemoteClusterID}},
		Name: o.PodName, Writer: func(string) string { return "liqo/gateway-" + string(o.UID) },
		Silent: func() bool { return o.PodName == "" || !g.last().Holds },
	})
	return g
}

// tasks returns what runs beside the daemon. told ends when the process is told to end, before it
// does.
func (g *gateway) tasks(told context.Context) []daemon.Task {
	tasks := []daemon.Task{
		g.decide, g.tunnels.run, g.returnMemory,
		func(ctx context.Context) error {
			g.connections.Keep(ctx, func() { notify(g.connection) })
			return nil
		},
		func(ctx context.Context) error {
			select {
			case <-told.Done():
			case <-ctx.Done():
				return nil
			}
			g.tell(ctx, func(s *plan.Sight) { s.Stop = time.Now() })
			return nil
		},
	}
	if g.LeaderElection {
		e := &election{Options: g.Options, client: g.client.Coordination}
		tasks = append(tasks, func(ctx context.Context) error {
			return e.run(ctx, told, func(l plan.Leader) { g.tell(ctx, func(s *plan.Sight) { s.Leader = l }) })
		})
	}
	return tasks
}

// decide lets plan.Gateway decide after each event, and at the time it asked for.
func (g *gateway) decide(ctx context.Context) error {
	sight := plan.Sight{Options: g.Options, Own: g.PodIP}
	sockets := g.openSockets(ctx)
	defer func() {
		for _, s := range sockets {
			s.close()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		look := false
		select {
		case <-ctx.Done():
			return nil
		case <-g.objects:
			sight.Objects, look = g.observed(), true
		case <-g.connection:
			sight.Connection = g.connections.Get(g.Namespace, api.GatewayResourceName(g.Name))
			sight.ConnectionChanged = true
		case <-g.moved:
			sight.Moved = true
		case e := <-g.events:
			e(&sight)
		case <-timer.C:
		}
		for range len(g.events) {
			(<-g.events)(&sight)
		}
		d := plan.Gateway(sight, g.last(), time.Now())
		sight.News = plan.News{}
		g.publish(d.State, sight.Objects.Complete && sight.Own.IsValid())
		for _, m := range d.Log {
			klog.FromContext(ctx).Info(m.Text, m.Values...)
		}
		for _, a := range d.Actions {
			g.act(ctx, a, sockets)
		}
		switch {
		case d.Look:
			g.LookNow()
		case look:
			g.Look()
		}
		timer.Stop()
		if !d.Wake.IsZero() {
			timer.Reset(time.Until(d.Wake))
		}
	}
}

// tell sends an event.
func (g *gateway) tell(ctx context.Context, e event) {
	select {
	case g.events <- e:
	case <-ctx.Done():
	}
}

// last returns the state of the last decision.
func (g *gateway) last() plan.State {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state
}

// publish records the state of a decision. complete reports whether it considered all objects.
func (g *gateway) publish(s plan.State, complete bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state = s
	select {
	case <-g.decided:
	default:
		if complete {
			close(g.decided)
		}
	}
}

// observed returns what the API objects say about the tunnel.
func (g *gateway) observed() plan.Objects {
	o := plan.Objects{Complete: g.Complete()} // read first
	keys := slices.DeleteFunc(slices.Clone(g.keys.List()), func(k *netv1beta1.PublicKey) bool {
		return k.Labels[api.LabelGatewayResource] != api.True
	})
	o.PeerKey = kernel.PeerKey(keys)
	if f := g.fabrics.Get(g.Namespace, g.Name); f != nil && f.DeletionTimestamp == nil {
		o.GatewayIP = &f.Spec.GatewayIP
	}
	return o
}

// want plans the state of the kernel from the objects and the last decision, which it waits for at
// the start.
func (g *gateway) want(ctx context.Context, reread bool) (kernel.State, bool, error) {
	own, peer := g.Addresses()
	if reread {
		var outer netip.Addr
		var err error
		g.With(func(d *dataplane.Dataplane) { g.under, outer, err = d.Underlay(g.PodIP) })
		if err != nil {
			return kernel.State{}, false, err
		}
		if outer != g.own {
			g.own = outer
			g.tell(ctx, func(s *plan.Sight) { s.Own = outer })
		}
	}
	in := kernel.GatewayStateInput{Node: g.NodeName, Port: g.OverlayPort, Sources: g.OverlaySources, Under: g.under}
	in.Self.Outer = g.own
	select {
	case <-g.decided:
	case <-ctx.Done():
		return kernel.State{}, false, ctx.Err()
	}
	last := g.last()
	g.revision = last.Revision
	in = kernel.GatewayObjects{
		Gateway:        types.NamespacedName{Namespace: g.Namespace, Name: g.Name},
		Peer:           g.RemoteClusterID,
		Configurations: g.configurations.List(),
		Fabrics:        g.fabrics.List(), Nodes: g.nodes.List(), IPs: g.ips.List(),
	}.Input(in)
	w := last.Want
	in.Tunnel = kernel.TunnelInput{
		Address: own, PeerAddress: peer, MTU: g.MTU, Passes: w.Passes,
		ListenPort: g.ListenPort, Listen: g.MoreListenPorts, Dial: g.MoreEndpointPorts, TCP: g.TCP,
		PublicKey: g.key.String(), PeerKey: w.PeerKey, Endpoint: w.Endpoint, Silent: w.Silent,
	}
	in.Relays, in.Tracks = w.Relays, g.rules.Track()
	var wait time.Duration
	if in.Protected, wait = g.protected.Follow(in.Protected, time.Now()); wait > 0 {
		time.AfterFunc(wait, g.Look)
	}
	return kernel.GatewayState(in), true, nil
}

// looked tells the result of a look at the kernel.
func (g *gateway) looked(ctx context.Context, failure *daemon.Failure) {
	revision := g.revision
	g.tell(ctx, func(s *plan.Sight) {
		s.Looked, s.Failing = revision, nil
		if failure != nil {
			s.Failing = &plan.Failing{Since: failure.Since, Message: failure.Err.Error()}
		}
	})
}

// notify sends a message unless an unread one is there.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
