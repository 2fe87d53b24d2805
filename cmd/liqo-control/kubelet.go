// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/elect"
	"github.com/liqo-go/liqo/internal/remote"
	nodekubelet "github.com/liqo-go/liqo/offloading/kubelet"
	"github.com/liqo-go/liqo/reflection"
	"github.com/liqo-go/liqo/reflection/translate"
)

func kubelet() *cobra.Command {
	f := nodekubelet.NewFlags()
	cmd := &cobra.Command{
		Use:   "kubelet",
		Short: "Keeps one virtual node and reflects the objects of its pods",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return runKubelet(cmd.Context(), f) },
	}
	f.AddFlags(cmd.Flags())
	ignore(cmd, "enable-storage", "virtual-storage-class-name", "remote-real-storage-class-name", "enable-ingress",
		"enable-load-balancer", "remote-external-cidr", "remote-external-cidr-remap", "resync-period")
	return cmd
}

// runKubelet runs the node and the reflection concurrently; the first that fails ends both. Of
// several replicas only the leader does so: two would overwrite each other's address in the Node.
func runKubelet(ctx context.Context, f *nodekubelet.Flags) error {
	home, err := clientcmd.BuildConfigFromFlags("", f.HomeKubeconfig)
	if err != nil {
		return fmt.Errorf("load home kubeconfig: %w", err)
	}
	home.QPS = -1 // the API server's own priority and fairness is the limit
	if err := await(ctx, home, ""); err != nil {
		return err
	}
	peer, err := remote.Follow(ctx, home, types.NamespacedName{Namespace: f.TenantNamespace,
		Name: f.ForeignKubeconfigSecretName})
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	options, err := reflectionOptions(f, home, peer, registry)
	if err != nil {
		return err
	}
	work := func(ctx context.Context) error {
		pods, err := reflection.PodsOf(home, f.NodeName)
		if err != nil {
			return err
		}
		options.Pods = pods
		upgraded := make(chan struct{}, 1)
		options.Upgraded = upgraded
		states := nodekubelet.PodCollector(ctx, f, pods)
		if err := registry.Register(states); err != nil {
			return fmt.Errorf("register metrics of pods: %w", err)
		}
		defer registry.Unregister(states)
		return together(ctx,
			func(ctx context.Context) error {
				return nodekubelet.RunNode(ctx, nodekubelet.Options{
					Flags: f, Home: home, Peer: peer, Pods: pods, Metrics: registry, Upgraded: upgraded,
				})
			},
			func(ctx context.Context) error { return reflection.Run(ctx, options) },
		)
	}
	return together(ctx,
		func(ctx context.Context) error { return asLeader(ctx, f, home, work) },
		func(ctx context.Context) error { return serveMetrics(ctx, f, registry) },
	)
}

// asLeader calls work while this replica holds the lease of the virtual node, until ctx ends. A
// single replica works at once and uses no lease.
func asLeader(ctx context.Context, f *nodekubelet.Flags, home *rest.Config, work func(context.Context) error) error {
	if f.Replicas <= 1 || !f.LeaseEnabled {
		return work(ctx)
	}
	if f.PodName == "" {
		return errors.New("flag --vk-replicas: set the variable POD_NAME, by which replicas are told apart")
	}
	clients, err := coordinationclient.NewForConfig(home)
	if err != nil {
		return fmt.Errorf("make client of the home cluster: %w", err)
	}
	lease := elect.Lease{Client: clients, Namespace: f.TenantNamespace, Name: f.NodeName, Holder: f.PodName,
		Times: leaseTimes(f)}
	for ctx.Err() == nil {
		if err := lease.Serve(ctx, work); err != nil {
			return err
		}
	}
	return nil
}

func leaseTimes(f *nodekubelet.Flags) elect.Times {
	return elect.Times{Duration: f.LeaseDuration, Renewal: f.LeaseRenewInterval, Retry: f.LeaseRetryPeriod}
}

// reflectionOptions translates the flags into the options of reflection.
func reflectionOptions(f *nodekubelet.Flags, home *rest.Config, peer *remote.Peer,
	registry prometheus.Registerer) (reflection.Options, error) {
	podCIDRs, err := prefixes(f.LocalPodCIDRs)
	if err != nil {
		return reflection.Options{}, fmt.Errorf("flag --local-podcidr: %w", err)
	}
	peerPods, err := netv1beta1.ParseMappings(f.RemotePodCIDRs, f.RemotePodCIDRRemaps)
	if err != nil {
		return reflection.Options{}, fmt.Errorf("flags --remote-pod-cidr and --remote-pod-cidr-remap: %w", err)
	}
	podIP, err := netip.ParseAddr(f.NodeIP)
	if err != nil {
		return reflection.Options{}, fmt.Errorf("flag --node-ip: %w", err)
	}
	resolver, err := os.ReadFile("/etc/resolv.conf")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return reflection.Options{}, fmt.Errorf("read the DNS domain of the cluster: %w", err)
	}
	reflectors := map[string]offv1beta1.ReflectorConfig{}
	for kind, r := range f.Reflectors {
		if r.Workers > 0 {
			reflectors[kind] = *r
		}
	}
	var custom []reflection.CustomResource
	for resource, how := range f.CustomReflectors {
		c, err := reflection.ParseCustomResource(resource, how)
		if err != nil {
			return reflection.Options{}, fmt.Errorf("flag --custom-reflection: %w", err)
		}
		custom = append(custom, c)
	}
	return reflection.Options{
		Home:                    home,
		Remote:                  peer.Config(),
		Consumer:                f.HomeClusterID,
		Provider:                f.ForeignClusterID,
		Node:                    f.NodeName,
		TenantNamespace:         f.TenantNamespace,
		LiqoNamespace:           f.LiqoNamespace,
		PodIP:                   podIP,
		LocalPodCIDRs:           podCIDRs,
		PeerPods:                peerPods,
		DisableIPReflection:     f.DisableIPReflection,
		RuntimeClass:            f.RuntimeClass,
		Reflectors:              reflectors,
		Custom:                  custom,
		LabelsNotReflected:      f.LabelsNotReflected,
		AnnotationsNotReflected: f.AnnotationsNotReflected,
		HomeAPIServerHost:       f.HomeAPIServerHost,
		HomeAPIServerPort:       f.HomeAPIServerPort,
		ClusterDomain:           translate.ClusterDomain(string(resolver)),
		DisableAPIServerSupport: !f.EnableAPIServerSupport,
		IngressClass:            f.RemoteRealIngressClassName,
		LoadBalancerClass:       f.RemoteRealLoadBalancerClassName,
		NoLease:                 !f.LeaseEnabled,
		Lease:                   leaseTimes(f),
		Metrics:                 registry,
	}, nil
}

// serveMetrics serves /metrics until ctx ends, if metrics are enabled.
func serveMetrics(ctx context.Context, f *nodekubelet.Flags, registry *prometheus.Registry) error {
	if !f.MetricsEnabled {
		<-ctx.Done()
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Addr: f.MetricsAddress, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // ends ListenAndServe
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics at %s: %w", f.MetricsAddress, err)
	}
	return nil
}

// together runs tasks concurrently until all have ended. When one ends, the context of the others
// is cancelled. It returns the first error.
func together(ctx context.Context, tasks ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	failed := make(chan error, len(tasks))
	for _, task := range tasks {
		group.Go(func() {
			defer cancel()
			if err := task(ctx); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
	}
	group.Wait()
	close(failed)
	return <-failed // nil if none failed
}
