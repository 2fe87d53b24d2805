// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kuberouter enforces NetworkPolicies on a node with kube-router's controller, beside any CNI. Kube-router's own
// command needs the SDK of a cloud.
//
//	kuberouter NODE KUBECONFIG SERVICE-CIDR
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: kuberouter NODE KUBECONFIG SERVICE-CIDR")
		os.Exit(2)
	}
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "kuberouter:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, node, kubeconfig, services string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	o := options.NewKubeRouterConfig()
	o.EnableIPv4, o.ClusterIPCIDRs, o.HostnameOverride = true, []string{services}, node
	tables, sets, err := netpol.NewIPTablesHandlers(o)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods, namespaces := factory.Core().V1().Pods().Informer(), factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced, namespaces.HasSynced, policies.HasSynced) {
		return ctx.Err()
	}
	controller, err := netpol.NewNetworkPolicyController(client, o, pods, policies, namespaces, &sync.Mutex{}, tables, sets)
	if err != nil {
		return err
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods: controller.PodEventHandler, namespaces: controller.NamespaceEventHandler, policies: controller.NetworkPolicyEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	// Nobody asks whether it is alive: a node starts it again when it ends.
	beats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range beats {
		}
	}()
	var all sync.WaitGroup
	all.Add(1)
	controller.Run(beats, ctx.Done(), &all)
	all.Wait()
	return nil
}
