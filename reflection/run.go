// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/elect"
	"github.com/liqo-go/liqo/internal/packed"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/reflection/translate"
)

// Options describes the reflection of one virtual node.
type Options struct {
	// Home and Remote reach the API servers. Remote keeps its credentials up to date
	// (remote.Peer.Config).
	Home, Remote *rest.Config
	// Consumer and Provider are cluster IDs; Consumer is the home cluster.
	Consumer, Provider string
	// Node is the virtual node.
	Node string
	// TenantNamespace is the provider's tenant namespace in the consumer, LiqoNamespace the
	// namespace of the installation.
	TenantNamespace, LiqoNamespace string
	// PodIP is the address of this process's pod, which pods report as their host's; zero = none.
	PodIP netip.Addr
	// LocalPodCIDRs are the pod CIDRs of the home cluster; empty = those of the provider's
	// Configuration.
	LocalPodCIDRs []netip.Prefix
	// PeerPods maps the ranges of the provider's pods; empty = those of the provider's
	// Configuration.
	PeerPods netv1beta1.Mappings
	// DisableIPReflection hides the addresses of remote pods, and reflects no EndpointSlices.
	DisableIPReflection bool
	// RuntimeClass is the name of the class that sends pods to virtual nodes.
	RuntimeClass string
	// Reflectors configures kinds by key; nil = offv1beta1.DefaultReflectors. A missing key
	// switches its kind off.
	Reflectors map[string]offv1beta1.ReflectorConfig
	// Custom are further resources of the offloaded namespaces.
	Custom []CustomResource
	// LabelsNotReflected and AnnotationsNotReflected are keys that are not reflected.
	LabelsNotReflected, AnnotationsNotReflected []string
	// HomeAPIServerHost and HomeAPIServerPort say where remote pods reach the home API server;
	// empty = kubernetes.default.svc at the addresses of the IP objects of type api-server.
	HomeAPIServerHost, HomeAPIServerPort string
	// ClusterDomain is the DNS domain of the home cluster; empty = unknown.
	ClusterDomain string
	// DisableAPIServerSupport leaves remote pods without access to the home API server.
	DisableAPIServerSupport bool
	// IngressClass and LoadBalancerClass are used at the provider; empty = the default of the
	// VirtualNode.
	IngressClass, LoadBalancerClass string
	// NoLease makes every virtual node reflect the objects that all virtual nodes of a provider
	// share; false = one of several is elected.
	NoLease bool
	// Lease sets the times of that election.
	Lease elect.Times
	// Pods caches the pods of the virtual node, and is started by Run; nil = Run calls PodsOf.
	Pods cache.Cache
	// Upgraded receives a value when the version of the home API server has changed; nil = never.
	Upgraded <-chan struct{}
	// Metrics registers the counters; nil = they are not registered.
	Metrics prometheus.Registerer
}

// +kubebuilder:rbac:groups="",resources=events,verbs=get;list;watch;create;patch

// Run reflects for one virtual node until ctx ends: its pods and, if it is the provider's
// reflector, all other objects of the offloaded namespaces. Several virtual nodes can run in one
// process. Remote objects are not deleted when it ends. It returns only errors of the set-up: it
// waits for an API server that is unreachable.
func Run(ctx context.Context, o Options) error {
	if o.Reflectors == nil {
		o.Reflectors = offv1beta1.DefaultReflectors()
	}
	r, err := newRunner(ctx, o)
	if err != nil {
		return err
	}
	defer r.events.shutdown()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	start := func(f func(context.Context) error) {
		running.Go(func() {
			if err := f(ctx); err != nil {
				cancel(err)
			}
		})
	}
	start(r.pods.Start)
	start(r.viewer.cache.Start)
	if r.pods.WaitForCacheSync(ctx) && r.viewer.cache.WaitForCacheSync(ctx) {
		var pods corev1.PodList
		if err := r.pods.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
			cancel(fmt.Errorf("list pods of node %s: %w", o.Node, err))
		}
		r.shared.names.restore(pods.Items, o.Reflectors)
		_, again := r.compare(ctx)
		start(r.own.Run)
		start(r.back.Run)
		start(r.shared.run)
		start(func(ctx context.Context) error { return r.viewer.run(ctx, r.see) })
		start(func(ctx context.Context) error { return r.compareAgain(ctx, again, o.Upgraded) })
	}
	running.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// runner holds the parts of Run.
type runner struct {
	own    *Engine // reflects the pods of the virtual node
	back   *Engine // reflects the provider's events back
	shared *shared // reflects the objects that the provider's virtual nodes share
	viewer *viewer
	pods   cache.Cache // the pods of the virtual node
	events recorders
	kinds  []Kind // of own and shared
	newer  *newer // of own and shared
}

func newRunner(ctx context.Context, o Options) (*runner, error) {
	s := scheme.New()
	home, provider, err := clusters(o, s)
	if err != nil {
		return nil, err
	}
	r := &runner{pods: o.Pods}
	if r.pods == nil {
		if r.pods, err = PodsOf(o.Home, o.Node); err != nil {
			return nil, err
		}
	}
	if _, err := r.pods.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false)); err != nil {
		return nil, fmt.Errorf("watch pods of node %s: %w", o.Node, err)
	}
	if r.viewer, err = newViewer(ctx, home, o); err != nil {
		return nil, err
	}
	clients, err := kubernetes.NewForConfigAndClient(home.RESTConfig, home.HTTP)
	if err != nil {
		return nil, fmt.Errorf("make client of the home cluster: %w", err)
	}
	if r.events, err = newRecorders(ctx, home); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	r.newer = newNewer()
	c := Config{Peer: o.Provider, Node: o.Node, Home: home, Remote: provider, Events: r.events.of(s), metrics: m,
		newer: r.newer}
	names := &foreign{since: map[foreignName]metav1.Time{}}
	c.Kinds = podKinds(o, home, r.pods, names, r.viewer.wantTrust)
	if r.own, err = New(c); err != nil {
		return nil, err
	}
	names.changed = func(namespace string) { r.own.enqueueNamespace(ctx, namespace) }
	r.kinds = c.Kinds
	c.Kinds = namespaceKinds(o, home, names)
	r.kinds = slices.Concat(r.kinds, c.Kinds)
	r.shared = &shared{
		make:    func() (*Engine, error) { return New(c) },
		leases:  clients.CoordinationV1(),
		names:   names,
		Options: o,
		first:   make(chan struct{}),
	}
	back := c.reversed()
	back.Kinds = eventKinds(o, podOf(r.pods), r.shared.origin)
	if r.back, err = New(back); err != nil {
		return nil, err
	}
	return r, nil
}

// clusters returns both sides. API servers warn of unknown fields only in what is written as JSON, so
// that is how the provider is written to.
func clusters(o Options, s *runtime.Scheme) (home, provider *remote.Cluster, err error) {
	mapper := mapperOf(s, o.Custom)
	if home, err = remote.NewCluster(o.Home, s, mapper); err != nil {
		return nil, nil, err
	}
	peer := rest.CopyConfig(o.Remote)
	peer.WarningHandlerWithContext = warnings{}
	peer.ContentType = runtime.ContentTypeJSON
	peer.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	provider, err = remote.NewCluster(peer, s, mapper)
	return home, provider, err
}

// see passes a new view to all engines. If only Own differs, only pods are reconciled: nothing else
// depends on it, and it changes with every node that joins.
func (r *runner) see(ctx context.Context, view translate.View) error {
	former := r.viewer.former
	former.Own = view.Own
	if reflect.DeepEqual(former, view) {
		r.own.setOwn(ctx, view)
		return nil
	}
	if err := r.own.SetView(ctx, view); err != nil {
		return err
	}
	if err := r.back.SetView(ctx, reversed(view)); err != nil {
		return err
	}
	return r.shared.see(ctx, view)
}

// compareInterval is the time after which the fields are compared again if that failed.
const compareInterval = 30 * time.Second

// compare finds the fields that the home API server has and our types lack. It returns whether the
// result has changed, and a channel that receives when to compare again; nil = after an upgrade. After an
// error the former result stays.
func (r *runner) compare(ctx context.Context) (changed bool, again <-chan time.Time) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	changed, err := r.newer.read(ctx, r.own.Home, r.kinds)
	if err != nil {
		log.FromContext(ctx).Error(err, "compare fields of kinds with those of the API server")
		if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) { // else waiting is no help
			again = time.After(compareInterval)
		}
	}
	return changed, again
}

// compareAgain compares the fields after an error and after each upgrade of the home API server, until ctx
// ends. It enqueues all objects after a change.
func (r *runner) compareAgain(ctx context.Context, again <-chan time.Time, upgraded <-chan struct{}) error {
	for {
		select {
		case <-upgraded:
		case <-again:
		case <-ctx.Done():
			return nil
		}
		var changed bool
		if changed, again = r.compare(ctx); changed {
			r.own.enqueueAll(ctx)
			r.shared.enqueueAll(ctx)
		}
	}
}

// reversed returns the configuration of an engine with the clusters swapped, which writes no events
// about events.
func (c Config) reversed() Config {
	c.Home, c.Remote, c.Events, c.newer = c.Remote, c.Home, nil, nil
	return c
}

// reversed returns the view with consumer and provider swapped.
func reversed(view translate.View) translate.View {
	out := translate.View{
		Consumer: view.Provider, Provider: view.Consumer, Node: view.Node, Namespaces: map[string]string{},
		Ending: map[string]bool{},
	}
	for home, remote := range view.Namespaces {
		out.Namespaces[remote], out.Ending[remote] = home, view.Ending[home]
	}
	return out
}

// PodsOf returns a cache of the pods bound to a node. It holds their status, and the parts of their
// specs that translate.TrimPod keeps.
func PodsOf(config *rest.Config, node string) (cache.Cache, error) {
	s := scheme.New()
	home, err := remote.NewCluster(config, s, remote.StaticMapper(s))
	if err != nil {
		return nil, err
	}
	return home.NewCache(cache.Options{
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Field: fields.OneTermEqualSelector("spec.nodeName", node)},
		},
		DefaultTransform:             trimming(Trim(translate.TrimPod)),
		DefaultUnsafeDisableDeepCopy: new(true),
		NewInformer:                  packed.Informer,
	})
}
