// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/dashboard"
	"github.com/liqo-go/liqo/view"
)

func (e *env) dashboardCommand() *cobra.Command {
	var port uint16
	var demo bool
	cmd := &cobra.Command{Use: "dashboard", Short: "Show the cluster and its peerings as web pages", Args: cobra.NoArgs,
		Long: "dashboard serves web pages about the cluster on this machine, to all who have the printed address, " +
			"until it is interrupted. It installs nothing and changes nothing. It reads with the rights of the " +
			"kubeconfig.",
		Example: "  liqoctl dashboard\n  liqoctl dashboard --kubeconfig rome.yaml --port 8080\n" +
			"  liqoctl dashboard --demo",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !demo {
				return e.watchDashboard(cmd, port)
			}
			recorded, err := dashboard.Demo()
			if err != nil {
				return err
			}
			return e.serveDashboard(cmd.Context(), port, dashboard.NewSnapshots(recorded))
		}}
	flags := cmd.Flags()
	addLiqoFlag(flags, "namespace", "n", "")
	flags.Uint16Var(&port, "port", 0, "Port of the pages on 127.0.0.1; 0 = any that is free")
	flags.BoolVar(&demo, "demo", false, "Show recorded clusters instead, without a kubeconfig")
	return cmd
}

// watchDashboard shows the cluster of the kubeconfig until it is interrupted.
func (e *env) watchDashboard(cmd *cobra.Command, port uint16) error {
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	c, err := e.localCluster(ctx, cmd)
	if err != nil {
		return err
	}
	errs := &dashboard.WatchErrors{}
	whole := func(object any) (any, error) { return object, nil } // managed fields say how old a key is
	cache, err := ctrlcache.New(c.config, ctrlcache.Options{Scheme: e.scheme,
		ByObject:         map[client.Object]ctrlcache.ByObject{&netv1beta1.PublicKey{}: {Transform: whole}},
		DefaultTransform: ctrlcache.TransformStripManagedFields(), DefaultWatchErrorHandler: errs.Handle})
	if err != nil {
		return c.unreachable(ctx, err)
	}
	raw, err := restClient(c.config)
	if err != nil {
		return err
	}
	watcher := &dashboard.Watcher{Cache: cache, Errors: errs.Text, Metrics: gatewayMetrics(raw), Base: view.Snapshot{
		ClusterID: c.id, Namespace: c.namespace, Command: e.name, Hidden: c.hidden(ctx)}}
	snapshots := dashboard.NewSnapshots(watcher.First())
	return inParallel(
		func() error { defer stop(); return watcher.Run(ctx, snapshots) },
		func() error { defer stop(); return e.serveDashboard(ctx, port, snapshots) },
	)
}

// mostMetrics bounds the metrics of a gateway in bytes. Measured: 5 kB.
const mostMetrics = 1 << 16

// gatewayMetrics returns a function that reads the metrics of a gateway pod through the API server.
func gatewayMetrics(raw rest.Interface) func(context.Context, *corev1.Pod) ([]byte, error) {
	return func(ctx context.Context, pod *corev1.Pod) ([]byte, error) {
		for _, container := range pod.Spec.Containers {
			for _, port := range container.Ports {
				if port.Name != "gw-metrics" {
					continue
				}
				path := fmt.Sprintf("%s:%d/proxy/metrics", podPath(pod), port.ContainerPort)
				stream, err := raw.Get().AbsPath(path).Stream(ctx)
				if err != nil {
					return nil, err
				}
				defer stream.Close() //nolint:errcheck // it was only read
				return io.ReadAll(io.LimitReader(stream, mostMetrics))
			}
		}
		return nil, fmt.Errorf("pod %s/%s has no port gw-metrics", pod.Namespace, pod.Name)
	}
}

// serveDashboard prints the address of the pages and serves them until it is interrupted.
func (e *env) serveDashboard(ctx context.Context, port uint16, snapshots *dashboard.Snapshots) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return hint(fmt.Errorf("open a port for the dashboard: %w", err), "choose another one with --port")
	}
	server := dashboard.New(snapshots, listener)
	e.info(noCluster, "The dashboard is at %s until you press Ctrl-C; whoever has this address can see it",
		server.URL())
	return server.Serve(ctx)
}

// hidden returns the kinds of the dashboard that the user may not list and watch in all namespaces, with what helps.
// If the API server does not say, the user may try.
func (c *cluster) hidden(ctx context.Context) map[string]string {
	out, mu := map[string]string{}, sync.Mutex{}
	_ = onEach((&view.Snapshot{}).Lists(), func(list runtime.Object) error { // it has no error
		gvk, err := apiutil.GVKForObject(view.NewItem(list), c.Scheme())
		if err != nil {
			return nil
		}
		mapping, err := c.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		why := ""
		switch {
		case meta.IsNoMatchError(err):
			why = "the cluster does not know this kind"
		case err == nil && !(c.may(ctx, "list", mapping) && c.may(ctx, "watch", mapping)):
			why = fmt.Sprintf("the user may not list and watch %s in all namespaces; an administrator can grant it",
				mapping.Resource.GroupResource())
		}
		if why != "" {
			mu.Lock()
			defer mu.Unlock()
			out[gvk.Kind] = why
		}
		return nil
	})
	return out
}

// may reports whether the user may do something with a resource in all namespaces.
func (c *cluster) may(ctx context.Context, verb string, of *meta.RESTMapping) bool {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: of.Resource.Group,
			Version: of.Resource.Version, Resource: of.Resource.Resource}}}
	return c.Create(ctx, review) != nil || review.Status.Allowed
}
