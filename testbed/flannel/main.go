// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command flannel runs flannel's VXLAN on a node, with subnets from Nodes and rules of nftables. Its own command needs the
// SDK of a cloud.
//
//	flannel NODE KUBECONFIG NET-CONF.JSON
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"
	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"github.com/flannel-io/flannel/pkg/trafficmngr/nftables"
)

// annotations is how flannel's annotations of Nodes begin.
const annotations = "flannel.alpha.coreos.com"

// resync is between two looks at the rules, in seconds; as in flannel's own command.
const resync = 5

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: flannel NODE KUBECONFIG NET-CONF.JSON")
		os.Exit(2)
	}
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "flannel:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, node, kubeconfig, netConf string) error {
	if err := os.Setenv("NODE_NAME", node); err != nil {
		return err
	}
	subnets, err := kube.NewSubnetManager(ctx, "", kubeconfig, annotations, netConf, false)
	if err != nil {
		return err
	}
	config, err := subnets.GetNetworkConfig(ctx)
	if err != nil {
		return err
	}
	stack, err := ipmatch.GetIPFamily(config.EnableIPv4, config.EnableIPv6)
	if err != nil {
		return err
	}
	device, err := ipmatch.LookupExtIface("eth0", "", "", stack, ipmatch.PublicIPOpts{})
	if err != nil {
		return err
	}
	vxlan, err := backend.NewManager(ctx, subnets, device).GetBackend(config.BackendType)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	defer all.Wait()
	network, err := vxlan.RegisterNetwork(ctx, &all, config)
	if err != nil {
		return err
	}
	rules := &nftables.NFTablesManager{}
	if err := rules.Init(ctx); err != nil {
		return err
	}
	lease := network.Lease()
	if err := rules.SetupAndEnsureMasqRules(ctx, config.Network, ip.IP4Net{}, ip.IP4Net{}, config.IPv6Network, ip.IP6Net{}, ip.IP6Net{}, lease, resync, false); err != nil {
		return err
	}
	rules.SetupAndEnsureForwardRules(ctx, config.Network, config.IPv6Network, resync)
	all.Go(func() { network.Run(ctx) })
	return subnets.CompleteLease(ctx, lease, &all)
}
