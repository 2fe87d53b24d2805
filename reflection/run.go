// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/elect"
	"github.com/liqo-go/liqo/internal/packed"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/reflection/translate"
)

// Options are what the reflection of one virtual node needs to know.
type Options struct {
	// Home and Remote reach the API servers; Remote follows its credentials by itself
	// (remote.Peer.Config).
	Home, Remote *rest.Config
	// Consumer and Provider are cluster IDs; Consumer is the home cluster.
	Consumer, Provider string
	// Node is the virtual node.
	Node string
	// TenantNamespace is that of the provider at home, LiqoNamespace the one of the
	// installation.
	TenantNamespace, LiqoNamespace string
	// PodIP is the address of this process' pod, shown as that of the pods' host; zero = none.
	PodIP netip.Addr
	// LocalPodCIDRs of the home cluster; empty = as the Configuration of the provider says.
	LocalPodCIDRs []netip.Prefix
	// PeerPods are the ranges of the provider's pods; empty = likewise.
	PeerPods netv1beta1.Mappings
	// DisableIPReflection shows no addresses of remote pods and reflects no EndpointSlices.
	DisableIPReflection bool
	// RuntimeClass is the class that sends pods to virtual nodes.
	RuntimeClass string
	// Reflectors by key; nil = offv1beta1.DefaultReflectors. A key that is missing is switched off.
	Reflectors map[string]offv1beta1.ReflectorConfig
	// Custom are further resources of the offloaded namespaces.
	Custom []CustomResource
	// LabelsNotReflected and AnnotationsNotReflected are keys that stay at home.
	LabelsNotReflected, AnnotationsNotReflected []string
	// HomeAPIServerHost and HomeAPIServerPort are where remote pods find the home API server;
	// empty = kubernetes.default by the addresses of the IP objects of type api-server.
	HomeAPIServerHost, HomeAPIServerPort string
	// ClusterDomain is the DNS domain of the home cluster; empty = not known.
	ClusterDomain string
	// DisableAPIServerSupport leaves remote pods without access to the home API server.
	DisableAPIServerSupport bool
	// IngressClass and LoadBalancerClass at the provider; empty = the default the VirtualNode
	// names.
	IngressClass, LoadBalancerClass string
	// NoLease has every virtual node reflect what all those of a provider have in common; false =
	// when there are several, one of them is elected.
	NoLease bool
	// Lease are the times of that election.
	Lease elect.Times
	// Pods are the pods of the virtual node, which Run starts to watch; nil = PodsOf makes them.
	Pods cache.Cache
	// Metrics is where the counters are registered; nil = nowhere.
	Metrics prometheus.Registerer
}

// +kubebuilder:rbac:groups="",resources=events,verbs=get;list;watch;create;patch

// Run reflects for one virtual node until ctx ends: its pods and, as the provider's reflector,
// all other objects of the offloaded namespaces. Several virtual nodes can run in one process.
// What exists at the provider stays when it ends. Errors are those of the set-up; an API server
// that is away is waited for.
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
		start(r.own.Run)
		start(r.back.Run)
		start(r.shared.run)
		start(func(ctx context.Context) error { return r.viewer.run(ctx, r.see) })
	}
	running.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// runner holds the parts of Run.
type runner struct {
	own    *Engine // of the pods of the virtual node
	back   *Engine // of the events that come back
	shared *shared // of what the provider's virtual nodes have in common
	viewer *viewer
	pods   cache.Cache // the pods of the virtual node
	events recorders
}

func newRunner(ctx context.Context, o Options) (*runner, error) {
	s := scheme.New()
	mapper := mapperOf(s, o.Custom)
	home, err := remote.NewCluster(o.Home, s, mapper)
	if err != nil {
		return nil, err
	}
	provider, err := remote.NewCluster(o.Remote, s, mapper)
	if err != nil {
		return nil, err
	}
	r := &runner{pods: o.Pods}
	if r.pods == nil {
		if r.pods, err = PodsOf(o.Home, o.Node); err != nil {
			return nil, err
		}
	}
	if _, err := r.pods.GetInformer(ctx, &corev1.Pod{}, notWaiting); err != nil {
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
	c := Config{Peer: o.Provider, Node: o.Node, Home: home, Remote: provider, Events: r.events.of(s), metrics: m}
	names := &foreign{since: map[string]map[translate.Reference]metav1.Time{}}
	c.Kinds = podKinds(o, home, r.pods, names)
	if r.own, err = New(c); err != nil {
		return nil, err
	}
	names.changed = func(namespace string) { r.own.lookAtNamespace(ctx, namespace) }
	c.Kinds = namespaceKinds(o, home, names)
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

// see gives a new view to all engines. If only Own differs, just pods are reconciled: nothing else depends on it, and
// it changes with every node that joins.
func (r *runner) see(ctx context.Context, view translate.View) error {
	former := r.viewer.former
	former.Own = view.Own
	if reflect.DeepEqual(former, view) {
		r.own.seeOwn(ctx, view)
		return nil
	}
	if err := r.own.See(ctx, view); err != nil {
		return err
	}
	if err := r.back.See(ctx, reversed(view)); err != nil {
		return err
	}
	return r.shared.see(ctx, view)
}

// reversed describes an engine that works the other way round, and writes no events about events.
func (c Config) reversed() Config {
	c.Home, c.Remote, c.Events = c.Remote, c.Home, nil
	return c
}

// reversed is the view from the provider.
func reversed(view translate.View) translate.View {
	out := translate.View{Consumer: view.Provider, Provider: view.Consumer, Node: view.Node, Namespaces: map[string]string{}}
	for home, remote := range view.Namespaces {
		out.Namespaces[remote] = home
	}
	return out
}

// PodsOf makes a cache of the pods bound to a node. It holds their status, and of their specs what
// translate.TrimPod leaves.
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
