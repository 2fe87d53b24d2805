// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package fabric implements the role that connects a node to the gateways of all peers. The desired
// state of the kernel is decided in network/plan and applied by network/daemon. The fabric writes
// only statuses: what the node cannot do, and the addresses it depends on.
package fabric

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/daemon"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/plan"
)

// Options are the options of the fabric on one node, described at the flags of the same names.
type Options struct {
	NodeName string
	// OverlayPort is a UDP port.
	OverlayPort int
	// OverlaySources are further ranges that frames of the overlay come from.
	OverlaySources []netip.Prefix
	// RulePriority is the priority of the routing rule; 0 = the default.
	RulePriority int
	// FullMasquerade translates the source of pods, which hides them from peers.
	FullMasquerade                bool
	MetricsAddress, HealthAddress string
}

// fabric is one running fabric.
type fabric struct {
	Options
	*daemon.Daemon
	fabrics *daemon.Objects[netv1beta1.InternalFabric]
	nodes   *daemon.Objects[netv1beta1.InternalNode]
	ips     *daemon.Objects[ipamv1alpha1.IP]
	// bridged reports whether a gateway is a pod behind a bridge of this node.
	bridged atomic.Bool
	// node holds what want read from the kernel; nil = nothing.
	node *node
}

// +kubebuilder:rbac:groups=networking.liqo.io,resources=internalfabrics;internalnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=firewallconfigurations;routeconfigurations,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=firewallconfigurations/status;routeconfigurations/status;internalfabrics/status;internalnodes/status,verbs=patch

// Run runs the fabric until the context ends. What it programmed stays until the last gateway is
// gone, so a restart does not affect traffic.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	client, err := daemon.Connect(cfg)
	if err != nil {
		return err
	}
	plane, err := dataplane.Open(dataplane.Options{})
	if err != nil {
		return err
	}
	f := &fabric{
		Options: o,
		fabrics: daemon.Watch[netv1beta1.InternalFabric](client.Networking, "internalfabrics", daemon.Selection{}),
		nodes:   daemon.Watch[netv1beta1.InternalNode](client.Networking, "internalnodes", daemon.Selection{}),
		ips:     daemon.Watch[ipamv1alpha1.IP](client.IPAM, "ips", daemon.Selection{}),
	}
	f.Daemon = daemon.New(daemon.Role{
		Name:    "fabric",
		Sources: []daemon.Source{f.fabrics, f.nodes, f.ips},
		Want:    f.want,
		Tasks: []daemon.Task{
			repeatedly(func(ctx context.Context) { f.report(ctx, client.Networking) }),
			repeatedly(func(ctx context.Context) { f.publish(ctx, client.Networking) }), // waits while nft runs
		},
		Contents: daemon.WatchContents(client, daemon.ContentsOptions{
			Host: plan.Host{Category: api.CategoryFabric, Names: []string{o.NodeName}},
			Name: o.NodeName, Writer: writer, Gone: f.gone,
		}),
		MetricsAddress: o.MetricsAddress, HealthAddress: o.HealthAddress,
	}, plane)
	return f.Daemon.Run(ctx)
}

// want plans the desired state from the objects.
func (f *fabric) want(ctx context.Context, reread bool) (plan.State, bool, error) {
	if reread {
		f.node = nil
	}
	objects := plan.NodeObjects{Node: f.NodeName, Fabrics: f.fabrics.List(), Nodes: f.nodes.List(), IPs: f.ips.List()}
	in, ready := objects.Input(plan.NodeStateInput{
		Port: f.OverlayPort, Sources: f.OverlaySources, RulePriority: f.RulePriority, Masquerade: f.FullMasquerade,
	})
	if !ready {
		klog.FromContext(ctx).Info("Waiting for the InternalNode of this node to get its addresses", "node", f.NodeName)
		return plan.State{}, false, nil
	}
	if len(in.Gateways) == 0 {
		f.bridged.Store(false)
		return plan.State{}, true, nil
	}
	if !f.node.fill(&in) {
		var err error
		f.With(func(d *dataplane.Dataplane) { f.node, err = readNode(d, in) })
		if err != nil {
			return plan.State{}, false, err
		}
		f.node.fill(&in)
	}
	f.bridged.Store(slices.ContainsFunc(in.Gateways, func(g plan.Member) bool { return g.Port != plan.Port{} }))
	return plan.NodeState(in), true, nil
}

// node holds what the kernel says about the devices that carry the overlay's frames.
type node struct {
	// self is the node whose addresses it was read for.
	self       plan.Member
	under      plan.Underlay
	podDevices []string
	// ports and here have the members that are pods of this node. known has all that were looked for.
	ports map[netip.Addr]plan.Port
	here  map[netip.Addr][]string
	known map[netip.Addr]bool
}

// readNode reads the kernel.
func readNode(d *dataplane.Dataplane, in plan.NodeStateInput) (_ *node, err error) {
	n := &node{self: in.Self, known: map[netip.Addr]bool{}}
	if n.under, _, err = d.Underlay(in.Self.Outer); err != nil {
		return nil, err
	}
	if n.podDevices, err = d.PodDevices(in.Self.CIDRs, n.under.Device); err != nil {
		return nil, err
	}
	for _, list := range [][]plan.Member{in.Gateways, in.Standbys} {
		for _, m := range list {
			n.known[m.Outer] = true
		}
	}
	outer := slices.Collect(maps.Keys(n.known))
	if n.ports, err = d.Ports(outer); err != nil {
		return nil, err
	}
	n.here, err = d.Here(outer, n.podDevices)
	return n, err
}

// fill adds what was read to the input. It reports false if something else must be read.
func (n *node) fill(in *plan.NodeStateInput) bool {
	if n == nil || n.self.Outer != in.Self.Outer || !slices.Equal(n.self.CIDRs, in.Self.CIDRs) {
		return false
	}
	in.Under, in.PodDevices = n.under, n.podDevices
	for _, list := range [][]plan.Member{in.Gateways, in.Standbys} {
		for i := range list {
			m := &list[i]
			if !n.known[m.Outer] {
				return false
			}
			m.Port = n.ports[m.Outer]
			m.MACs, m.Here = n.here[m.Outer]
		}
	}
	return true
}

// Command returns the command of the role "fabric" with the documented flags.
func Command() *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "fabric",
		Short: "Joins this node to the gateways of all peers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.NodeName == "" {
				return errors.New("flag --nodename is needed")
			}
			cfg, err := daemon.Config()
			if err != nil {
				return err
			}
			return Run(cmd.Context(), cfg, o)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.NodeName, "nodename", os.Getenv("NODE_NAME"), "name of this node")
	fs.IntVar(&o.OverlayPort, "geneve-port", api.OverlayPort, "UDP port of the links to gateways")
	fs.IntVar(&o.RulePriority, "fabric-route-rule-priority", 0, "priority of the routing rule; 0 means 90")
	fs.BoolVar(&o.FullMasquerade, "full-masquerade", false, "let peers see the first external address instead of pods'")
	fs.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	fs.StringVar(&o.MetricsAddress, "metrics-address", ":8082", "address of /metrics; 0 disables")
	plan.AddOverlaySources(fs, &o.OverlaySources)
	plan.AddIgnored(fs, "podname", "geneve-cleanup-interval", "disable-arp", "enable-nft-monitor",
		"enable-route-monitor", "disable-kernel-version-check", "minimum-kernel-version", "reconcile-timeout",
		"global-labels", "global-annotations")
	cmd.AddCommand(daemon.ShowCommand("fabric"))
	return cmd
}
