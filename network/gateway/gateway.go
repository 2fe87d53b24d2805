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
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/daemon"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/plan"
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
	InterfaceIP      netip.Prefix
	EndpointAddress  string
	EndpointPort     int
	DNSCheckInterval time.Duration
	KeysDir          string
	// Userspace forces WireGuard inside this process.
	Userspace bool
	// OverlayPort is UDP.
	OverlayPort int
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
	own    wgtypes.Key
	dialer dialer
	pinger *pinger
	// peer is the public key of the peer in base64, "" = not known yet.
	peer atomic.Value
	// active tells whether this replica has its turn; turn gets a message when that changed.
	active atomic.Bool
	turn   chan struct{}
}

// +kubebuilder:rbac:groups=networking.liqo.io,resources=internalfabrics;internalnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations;publickeies,namespace=tenant,verbs=get;list;watch

// Run runs a gateway until the context ends. What it programmed stays: a restart of the container
// finds it in the pod's network namespace.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	key, err := readKey(o.KeysDir)
	if err != nil {
		return err
	}
	plane, err := dataplane.Open(dataplane.Options{PrivateKey: key, Userspace: o.Userspace})
	if err != nil {
		return err
	}
	own, other := o.addresses()
	g := &gateway{Options: o, own: key.PublicKey(), dialer: dialer{host: o.EndpointAddress, port: o.EndpointPort, every: o.DNSCheckInterval}}
	g.peer.Store("")
	g.turn = make(chan struct{}, 1)
	if !o.LeaderElection {
		g.take(ctx, true)
	}
	g.pinger = newPinger(o, own.Addr(), other)
	peer := cache.ByObject{Namespaces: map[string]cache.Config{o.Namespace: {
		LabelSelector: labels.SelectorFromSet(labels.Set{api.LabelRemoteClusterID: o.RemoteClusterID}),
	}}}
	g.Daemon, err = daemon.New(cfg, daemon.Role{
		Name: "gateway",
		Kinds: []client.Object{
			&netv1beta1.Configuration{}, &netv1beta1.PublicKey{}, &netv1beta1.InternalFabric{}, &netv1beta1.InternalNode{}, &ipamv1alpha1.IP{},
		},
		Cache:          cache.Options{ByObject: map[client.Object]cache.ByObject{&netv1beta1.Configuration{}: peer, &netv1beta1.PublicKey{}: peer}},
		Want:           g.want,
		MetricsAddress: o.MetricsAddress, HealthAddress: o.HealthAddress, Metrics: g.metrics(),
	}, plane)
	if err != nil {
		return err
	}
	runs := []manager.RunnableFunc{g.markActive, g.keepConnection}
	if o.PingEnabled {
		runs = append(runs, g.pinger.run)
	}
	if o.LeaderElection {
		runs = append(runs, g.takeTurns)
	}
	for _, run := range runs {
		if err := g.Add(run); err != nil {
			return fmt.Errorf("add runnable: %w", err)
		}
	}
	return g.Run(ctx)
}

// addresses are ours and the peer's in the tunnel.
func (o Options) addresses() (netip.Prefix, netip.Addr) {
	own, peer := plan.TunnelAddresses(o.Server)
	if o.InterfaceIP.IsValid() && o.InterfaceIP != own {
		own, peer = o.InterfaceIP, o.InterfaceIP.Addr().Next()
		if !o.Server {
			peer = o.InterfaceIP.Addr().Prev()
		}
	}
	return own, peer
}

// want reads the objects and plans.
func (g *gateway) want(ctx context.Context, r client.Reader) (plan.State, bool, error) {
	objects, err := g.read(ctx, r)
	if err != nil {
		return plan.State{}, false, err
	}
	in, err := g.known(ctx)
	if err != nil {
		return plan.State{}, false, err
	}
	in = objects.Input(in)
	if g.peer.Swap(in.Tunnel.PeerKey) != in.Tunnel.PeerKey {
		g.pinger.begin()
	}
	return plan.GatewayState(in), true, nil
}

// known is what the process knows without objects.
func (g *gateway) known(ctx context.Context) (plan.GatewayStateInput, error) {
	own, peer := g.addresses()
	in := plan.GatewayStateInput{Node: g.NodeName, Port: g.OverlayPort}
	var err error
	g.With(func(d *dataplane.Dataplane) { in.Under, in.Self.Outer, err = d.Underlay(g.PodIP) })
	if err != nil {
		return in, err
	}
	in.Tunnel = plan.TunnelInput{Address: own, PeerAddress: peer, MTU: g.MTU, ListenPort: g.ListenPort, PublicKey: g.own.String()}
	if g.active.Load() { // two replicas that dial with one key would take the tunnel from each other
		in.Tunnel.Endpoint = g.dialer.endpoint(ctx, time.Now())
	}
	return in, nil
}

func (g *gateway) read(ctx context.Context, r client.Reader) (plan.GatewayObjects, error) {
	o := plan.GatewayObjects{Gateway: types.NamespacedName{Namespace: g.Namespace, Name: g.Name}}
	var configurations netv1beta1.ConfigurationList
	var keys netv1beta1.PublicKeyList
	var fabrics netv1beta1.InternalFabricList
	var nodes netv1beta1.InternalNodeList
	var ips ipamv1alpha1.IPList
	for what, list := range map[string]client.ObjectList{
		"Configurations": &configurations, "PublicKeys": &keys, "InternalFabrics": &fabrics, "InternalNodes": &nodes, "IPs": &ips,
	} {
		if err := r.List(ctx, list); err != nil {
			return o, fmt.Errorf("list %s: %w", what, err)
		}
	}
	for _, k := range keys.Items {
		if k.Labels[api.LabelGatewayResource] == api.True {
			o.PublicKeys = append(o.PublicKeys, k)
		}
	}
	o.Configurations, o.Fabrics, o.Nodes, o.IPs = configurations.Items, fabrics.Items, nodes.Items, ips.Items
	return o, nil
}

// markActive keeps the label on our pod that the Service of a server selects and by which the
// controller finds the replica to lead nodes to.
func (g *gateway) markActive(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-g.turn:
		}
		for g.PodName != "" {
			err := g.label(ctx, g.active.Load())
			if err == nil || ctx.Err() != nil {
				break
			}
			log.FromContext(ctx).Error(err, "The gateway pod could not be marked")
			pause(ctx, retryWrite)
		}
	}
}

// +kubebuilder:rbac:groups="",resources=pods,namespace=tenant,verbs=get;patch

// label writes the mark when it differs.
func (g *gateway) label(ctx context.Context, active bool) error {
	pod := &corev1.Pod{}
	if err := g.GetAPIReader().Get(ctx, types.NamespacedName{Namespace: g.Namespace, Name: g.PodName}, pod); err != nil {
		return fmt.Errorf("get pod %s/%s: %w", g.Namespace, g.PodName, err)
	}
	if (pod.Labels[api.LabelGatewayActive] == api.True) == active {
		return nil
	}
	patch := client.MergeFrom(pod.DeepCopy())
	if active {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, api.LabelGatewayActive, api.True)
	} else {
		delete(pod.Labels, api.LabelGatewayActive)
	}
	if err := g.GetClient().Patch(ctx, pod, patch); err != nil {
		return fmt.Errorf("label pod %s/%s: %w", g.Namespace, g.PodName, err)
	}
	return nil
}
