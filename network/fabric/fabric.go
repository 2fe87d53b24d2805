// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package fabric is the role that joins a node to the gateways of all peers. It only reads
// objects: what it wants of the kernel is decided in network/plan and done by network/daemon.
package fabric

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/daemon"
	"github.com/liqo-go/liqo/network/dataplane"
	"github.com/liqo-go/liqo/network/plan"
)

// Options of the fabric on one node; the flags of the same names say what they mean.
type Options struct {
	NodeName string
	// OverlayPort is UDP.
	OverlayPort int
	// RulePriority of the routing rule; 0 = the default.
	RulePriority                  int
	MetricsAddress, HealthAddress string
}

// fabric is one running fabric.
type fabric struct {
	Options
	*daemon.Daemon
}

// +kubebuilder:rbac:groups=networking.liqo.io,resources=internalfabrics;internalnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips,verbs=get;list;watch

// Run runs the fabric until the context ends. What it programmed stays until the last gateway is
// gone: a restart does not touch traffic.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	plane, err := dataplane.Open(dataplane.Options{})
	if err != nil {
		return err
	}
	f := &fabric{Options: o}
	f.Daemon, err = daemon.New(cfg, daemon.Role{
		Name:           "fabric",
		Kinds:          []client.Object{&netv1beta1.InternalFabric{}, &netv1beta1.InternalNode{}, &ipamv1alpha1.IP{}},
		Want:           f.want,
		MetricsAddress: o.MetricsAddress, HealthAddress: o.HealthAddress,
	}, plane)
	if err != nil {
		return err
	}
	return f.Daemon.Run(ctx)
}

// want reads the objects and plans.
func (f *fabric) want(ctx context.Context, r client.Reader) (plan.State, bool, error) {
	var fabrics netv1beta1.InternalFabricList
	var nodes netv1beta1.InternalNodeList
	var ips ipamv1alpha1.IPList
	for what, list := range map[string]client.ObjectList{"InternalFabrics": &fabrics, "InternalNodes": &nodes, "IPs": &ips} {
		if err := r.List(ctx, list); err != nil {
			return plan.State{}, false, fmt.Errorf("list %s: %w", what, err)
		}
	}
	objects := plan.NodeObjects{Node: f.NodeName, Fabrics: fabrics.Items, Nodes: nodes.Items, IPs: ips.Items}
	in, ready := objects.Input(plan.NodeStateInput{Port: f.OverlayPort, RulePriority: f.RulePriority})
	if !ready {
		log.FromContext(ctx).Info("Waiting for the InternalNode of this node to get its addresses", "node", f.NodeName)
		return plan.State{}, false, nil
	}
	if len(in.Gateways) == 0 {
		return plan.State{}, true, nil
	}
	var err error
	f.With(func(d *dataplane.Dataplane) { in.Under, _, err = d.Underlay(in.Self.Outer) })
	if err != nil {
		return plan.State{}, false, err
	}
	return plan.NodeState(in), true, nil
}

// Command is the role "fabric" with the documented flags.
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
			cfg, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("load kubeconfig: %w", err)
			}
			return Run(cmd.Context(), cfg, o)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.NodeName, "nodename", os.Getenv("NODE_NAME"), "name of this node")
	fs.IntVar(&o.OverlayPort, "geneve-port", api.OverlayPort, "UDP port of the links to gateways")
	fs.IntVar(&o.RulePriority, "fabric-route-rule-priority", 0, "priority of the routing rule; 0 means 90")
	fs.StringVar(&o.HealthAddress, "health-probe-bind-address", ":8081", "address of /healthz and /readyz")
	fs.StringVar(&o.MetricsAddress, "metrics-address", ":8082", "address of /metrics; 0 disables")
	daemon.Ignore(cmd, "podname", "geneve-cleanup-interval", "disable-arp", "enable-nft-monitor", "enable-route-monitor",
		"disable-kernel-version-check", "minimum-kernel-version", "reconcile-timeout", "global-labels", "global-annotations")
	cmd.AddCommand(daemon.ShowCommand("fabric"))
	return cmd
}
