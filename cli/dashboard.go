// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	var port int
	var demo bool
	var only []string
	var archive string
	cmd := &cobra.Command{Use: "dashboard", Short: "Show the cluster and its peerings as web pages", Args: cobra.NoArgs,
		Long: "dashboard serves web pages about the cluster on this machine, to all who have the printed address, " +
			"until it is interrupted. It installs nothing and changes nothing. It reads with the rights of the " +
			"kubeconfig. Users with rights in some namespaces only name these: then the pages show what is in them.",
		Example: "  liqoctl dashboard\n  liqoctl dashboard --kubeconfig rome.yaml --port 8080\n" +
			"  liqoctl dashboard --only-namespaces shop,batch\n" +
			"  liqoctl dashboard --demo\n  liqoctl dashboard --bundle report.tar.gz",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case demo && archive != "":
				return errors.New("use either --demo or --bundle")
			case len(only) > 0 && (demo || archive != ""):
				return errors.New("--only-namespaces is for a cluster of a kubeconfig; leave it out, or leave out " +
					"--demo or --bundle")
			case port < 0 || port > math.MaxUint16:
				return fmt.Errorf("--port: %d is no port; use 1 to %d, or 0 for any that is free", port, math.MaxUint16)
			case archive != "":
				return e.archiveDashboard(cmd.Context(), port, archive)
			case !demo:
				return e.watchDashboard(cmd, port, only)
			}
			recorded, err := dashboard.Demo()
			if err != nil {
				return err
			}
			return e.serveDashboard(cmd.Context(), port, dashboard.NewSnapshots(recorded))
		}}
	flags := cmd.Flags()
	addLiqoFlag(flags, "namespace", "n", "")
	flags.IntVar(&port, "port", 0, "Port of the pages on 127.0.0.1; 0 = any that is free")
	flags.StringSliceVar(&only, "only-namespaces", nil, "Read only these namespaces, not all")
	flags.BoolVar(&demo, "demo", false, "Show recorded clusters instead, without a kubeconfig")
	flags.StringVar(&archive, "bundle", "", "Show an archive of 'liqoctl gather' instead, without a kubeconfig")
	return cmd
}

// watchDashboard shows the cluster of the kubeconfig until it is interrupted.
func (e *env) watchDashboard(cmd *cobra.Command, port int, only []string) error {
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	c, err := e.localCluster(ctx, cmd)
	if err != nil && !(len(only) > 0 && apierrors.IsForbidden(err)) { // then the pages do not name the cluster
		return err
	}
	namespaces := map[string]ctrlcache.Config{}
	for _, name := range only {
		namespaces[name] = ctrlcache.Config{}
	}
	errs := &dashboard.WatchErrors{}
	whole := func(object any) (any, error) { return object, nil } // managed fields say how old a key is
	cache, err := ctrlcache.New(c.config, ctrlcache.Options{Scheme: e.scheme,
		ByObject:          map[client.Object]ctrlcache.ByObject{&netv1beta1.PublicKey{}: {Transform: whole}},
		DefaultNamespaces: namespaces, DefaultTransform: ctrlcache.TransformStripManagedFields(),
		DefaultWatchErrorHandler: errs.Handle})
	if err != nil {
		return c.unreachable(ctx, err)
	}
	raw, err := restClient(c.config)
	if err != nil {
		return err
	}
	watcher := &dashboard.Watcher{Cache: cache, Errors: errs.Text, Metrics: gatewayMetrics(raw), Base: view.Snapshot{
		ClusterID: c.id, Namespace: c.namespace, Command: e.name, Namespaces: only,
		Hidden: c.hidden(ctx, only)}}
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
		port := view.MetricsPort(pod)
		if port == 0 {
			return nil, fmt.Errorf("pod %s/%s serves no metrics", pod.Namespace, pod.Name)
		}
		stream, err := raw.Get().AbsPath(fmt.Sprintf("%s:%d/proxy/metrics", podPath(pod), port)).Stream(ctx)
		if err != nil {
			return nil, err
		}
		defer stream.Close() //nolint:errcheck // it was only read
		return io.ReadAll(io.LimitReader(stream, mostMetrics))
	}
}

// serveDashboard prints the address of the pages and serves them until it is interrupted.
func (e *env) serveDashboard(ctx context.Context, port int, snapshots *dashboard.Snapshots) error {
	listener, err := listenOn(port)
	if err != nil {
		return err
	}
	server := dashboard.New(snapshots, listener)
	e.info(noCluster, "The dashboard is at %s until you press Ctrl-C; whoever has this address can see it",
		server.URL())
	return server.Serve(ctx)
}

// listenOn opens a port for pages on loopback.
func listenOn(port int) (net.Listener, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, hint(fmt.Errorf("open a port for the dashboard: %w", err), "choose another one with --port")
	}
	return listener, nil
}

// hidden returns, by kind, why the dashboard does not read objects of that kind: the user may not list and watch them.
// Namespaced kinds are checked in the namespaces of only, or in all namespaces if only is empty. A kind whose check
// fails is not hidden: its watch reports the error.
func (c *cluster) hidden(ctx context.Context, only []string) map[string]string {
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
		case err == nil:
			why = c.refusal(ctx, gvk.Kind, mapping, only)
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

// refusal returns why a kind is not read, with what helps; empty if it is.
func (c *cluster) refusal(ctx context.Context, kind string, of *meta.RESTMapping, only []string) string {
	namespaces, where := []string{metav1.NamespaceAll}, "in all namespaces; an administrator can grant it, or name "+
		"namespaces with --only-namespaces"
	if len(only) > 0 && of.Scope.Name() == meta.RESTScopeNameNamespace {
		if !view.InNamespaces(kind) {
			return "they are in namespaces of Liqo and of peerings, which --only-namespaces leaves out"
		}
		namespaces, where = only, "in namespaces "+strings.Join(only, ", ")+"; an administrator can grant it"
	}
	for _, namespace := range namespaces {
		if !c.may(ctx, "list", of, namespace) || !c.may(ctx, "watch", of, namespace) {
			return fmt.Sprintf("the user may not list and watch %s %s", of.Resource.GroupResource(), where)
		}
	}
	return ""
}

// may reports whether the user may do something with a resource in a namespace, or in all if it is empty.
func (c *cluster) may(ctx context.Context, verb string, of *meta.RESTMapping, namespace string) bool {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: of.Resource.Group,
			Version: of.Resource.Version, Resource: of.Resource.Resource, Namespace: namespace}}}
	return c.Create(ctx, review) != nil || review.Status.Allowed
}
