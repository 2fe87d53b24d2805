// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// follower keeps the parameters of a peering equal on both sides, where this cluster has a
// control-plane identity at the other: endpoints, keys and CIDRs. For each kubeconfig Secret it
// watches the tenant namespace there; what differs is patched, here and there.
type follower struct {
	clusterID string
	home      client.Client
	// live reads this cluster's objects with their managed fields, which the cache drops.
	live    client.Reader
	scheme  *runtime.Scheme
	mapper  meta.RESTMapper
	changed chan event.GenericEvent

	mu    sync.Mutex
	peers map[types.NamespacedName]*followed // by Secret
}

// followed is one provider.
type followed struct {
	id, namespace string
	server        *remote.Peer
	// client reads and writes there; cache holds what was heard last from there, once synced is true.
	client client.Client
	cache  cache.Cache
	synced atomic.Bool
	// heard are the versions home followed last.
	heard map[string]string
	stop  context.CancelFunc
}

// fieldManager owns what was followed, here and there.
const fieldManager = "liqo/follow"

// parameters are the kinds that hold them.
func parameters() []client.Object {
	return []client.Object{
		&netv1beta1.GatewayServer{}, &netv1beta1.GatewayClient{}, &netv1beta1.Configuration{}, &netv1beta1.PublicKey{},
	}
}

func (o Options) follower() *follower {
	return &follower{clusterID: o.ClusterID, changed: make(chan event.GenericEvent), peers: map[types.NamespacedName]*followed{}}
}

// Register adds the follower to the manager.
func (f *follower) Register(mgr manager.Manager) error {
	f.home, f.live, f.scheme = client.WithFieldOwner(mgr.GetClient(), fieldManager), mgr.GetAPIReader(), mgr.GetScheme()
	mapper := meta.NewDefaultRESTMapper(nil) // asks nothing of a peer that may be away
	for kind := range f.scheme.KnownTypes(netv1beta1.GroupVersion) {
		mapper.Add(netv1beta1.GroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	f.mapper = mapper
	b := builder.ControllerManagedBy(mgr).Named("follow").
		For(&corev1.Secret{}, builder.WithPredicates(predicate.NewPredicateFuncs(remote.Labelled))).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(f.secretsIn)).
		WatchesRawSource(source.Channel(f.changed, &handler.EnqueueRequestForObject{})).
		WithOptions(ctl.Options())
	for _, kind := range parameters() {
		b = b.Watches(kind, handler.EnqueueRequestsFromMapFunc(f.secretsOf))
	}
	return b.Complete(f)
}

// secretsOf leads from an object of this cluster to the Secrets of its peer.
func (f *follower) secretsOf(_ context.Context, obj client.Object) []reconcile.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []reconcile.Request
	for key, p := range f.peers {
		if p.id == obj.GetLabels()[api.LabelRemoteClusterID] {
			out = append(out, reconcile.Request{NamespacedName: key})
		}
	}
	return out
}

func (f *follower) secretsIn(ctx context.Context, namespace client.Object) []reconcile.Request {
	return remote.SecretsIn(ctx, f.home, namespace)
}

// +kubebuilder:rbac:groups="",resources=secrets;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=gatewayservers;gatewayclients;configurations;publickeies,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=gatewayclients;configurations;publickeies,verbs=patch

// Reconcile compares the two sides of one Secret's peering.
func (f *follower) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{}
	found, err := get(ctx, f.home, req.Namespace, req.Name, secret)
	if err != nil {
		return reconcile.Result{}, err
	}
	if found && secret.DeletionTimestamp == nil {
		if found, err = remote.IsControlPlane(ctx, f.home, secret); err != nil {
			return reconcile.Result{}, err
		}
	}
	if !found || secret.DeletionTimestamp != nil {
		f.halt(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	p, err := f.ensure(ctx, secret)
	if err != nil || p == nil || !p.synced.Load() {
		return reconcile.Result{}, err
	}
	return f.compare(ctx, p)
}

// compare patches what differs. News of the provider are followed at once: they may be the last that come by the
// present way. Where there are none home was changed, and what the cache holds outlives the way to the provider:
// somebody may have repaired it, so the provider itself is asked.
func (f *follower) compare(ctx context.Context, p *followed) (reconcile.Result, error) {
	here, err := side(ctx, f.live, client.MatchingLabels{api.LabelRemoteClusterID: p.id})
	if err != nil {
		return reconcile.Result{}, err
	}
	there, err := side(ctx, p.cache) // it holds nothing else
	if err != nil {
		return reconcile.Result{}, err
	}
	heard, changes := versions(there), plan.Follow(here, there)
	if len(changes) > 0 && maps.Equal(heard, p.heard) {
		if there, err = f.ask(ctx, p); err != nil {
			return reconcile.Result{}, err
		}
		changes = plan.Follow(here, there)
	}
	done, err := patch(ctx, f.home, changes, "here")
	if err != nil {
		return reconcile.Result{}, err
	}
	if done {
		p.heard = heard
	}
	_, err = patch(ctx, p.client, plan.Follow(there, here), p.id)
	if apierrors.IsForbidden(err) {
		log.FromContext(ctx).Error(err, "tell the peer what changed here")
		return reconcile.Result{RequeueAfter: refusedPeriod}, nil
	}
	return reconcile.Result{}, err
}

// refusedPeriod is how often a provider is asked again that does not let itself be followed: one of
// another version, whose role for us changes when it is upgraded.
const refusedPeriod = 10 * time.Minute

// askTime is how long a provider may take to say what is there: others wait meanwhile.
const askTime = 5 * time.Second

// ask reads what is there now.
func (f *follower) ask(ctx context.Context, p *followed) (plan.Side, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	there, err := side(ctx, p.client, client.InNamespace(p.namespace), client.MatchingLabels{api.LabelRemoteClusterID: f.clusterID})
	if err != nil {
		return plan.Side{}, fmt.Errorf("ask %s: %w", p.id, err)
	}
	return there, nil
}

// versions tell one state of a provider from another.
func versions(s plan.Side) map[string]string {
	all := map[string]string{}
	for i := range s.Servers {
		all["server "+s.Servers[i].Name] = s.Servers[i].ResourceVersion
	}
	for i := range s.Clients {
		all["client "+s.Clients[i].Name] = s.Clients[i].ResourceVersion
	}
	for i := range s.Configurations {
		all["configuration "+s.Configurations[i].Name] = s.Configurations[i].ResourceVersion
	}
	for i := range s.PublicKeys {
		all["key "+s.PublicKeys[i].Name] = s.PublicKeys[i].ResourceVersion
	}
	return all
}

// side reads one side of a peering.
func side(ctx context.Context, r client.Reader, opts ...client.ListOption) (plan.Side, error) {
	var (
		servers        netv1beta1.GatewayServerList
		clients        netv1beta1.GatewayClientList
		configurations netv1beta1.ConfigurationList
		keys           netv1beta1.PublicKeyList
	)
	for _, l := range []client.ObjectList{&servers, &clients, &configurations, &keys} {
		if err := list(ctx, r, l, opts...); err != nil {
			return plan.Side{}, err
		}
	}
	return plan.Side{Servers: servers.Items, Clients: clients.Items, Configurations: configurations.Items, PublicKeys: keys.Items}, nil
}

// patch writes changes, only while the objects are as they were read: one that has changed or gone
// in the meantime leads here again, and not all is done.
func patch(ctx context.Context, c client.Client, changes []plan.Change, where string) (done bool, err error) {
	done = true
	for _, change := range changes {
		patch := client.MergeFromWithOptions(change.Before, client.MergeFromWithOptimisticLock{})
		key := client.ObjectKeyFromObject(change.After)
		err = c.Patch(ctx, change.After, patch)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			done = false
			continue
		}
		if err != nil {
			return false, fmt.Errorf("patch %T %s: %w", change.After, key, err)
		}
		log.FromContext(ctx).Info("followed the other side", "at", where, "kind", fmt.Sprintf("%T", change.After), "object", key)
	}
	return done, nil
}

// ensure starts to watch a Secret's provider, or hands on what has changed; nil when the Secret does
// not say where to look or has no usable kubeconfig, which replication reports.
func (f *follower) ensure(ctx context.Context, secret *corev1.Secret) (*followed, error) {
	key := client.ObjectKeyFromObject(secret)
	id, namespace := secret.Labels[api.LabelRemoteClusterID], secret.Annotations[api.AnnotationRemoteTenantNamespace]
	kubeconfig := secret.Data[api.KubeconfigField]
	f.mu.Lock()
	p := f.peers[key]
	f.mu.Unlock()
	if p != nil && p.id == id && p.namespace == namespace {
		if _, err := p.server.Update(kubeconfig); err != nil {
			return nil, nil
		}
		return p, nil
	}
	f.halt(key)
	server, err := remote.New(kubeconfig)
	if err != nil || namespace == "" {
		return nil, nil
	}
	p = &followed{id: id, namespace: namespace, server: server}
	return p, f.start(ctx, secret, p)
}

// start watches a provider; ctx is that of the controller's run and outlives the reconciliation.
func (f *follower) start(ctx context.Context, secret *corev1.Secret, p *followed) error {
	if err := f.open(p); err != nil {
		return fmt.Errorf("follow %s: %w", p.id, err)
	}
	ctx, p.stop = context.WithCancel(ctx)
	changed := func() {
		select {
		case f.changed <- event.GenericEvent{Object: secret}:
		case <-ctx.Done():
		}
	}
	on := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(_, _ any) { changed() }, DeleteFunc: func(any) { changed() },
	}
	for _, kind := range parameters() {
		informer, err := p.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(on)
		}
		if err != nil {
			p.stop()
			return fmt.Errorf("watch %T at %s: %w", kind, p.id, err)
		}
	}
	f.mu.Lock()
	f.peers[client.ObjectKeyFromObject(secret)] = p
	f.mu.Unlock()
	go p.run(ctx, changed)
	return nil
}

// open makes what a provider is read and written by. Nothing is asked of it yet.
func (f *follower) open(p *followed) error {
	config := p.server.Config()
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("make transport to %s: %w", config.Host, err)
	}
	there, err := client.New(config, client.Options{HTTPClient: transport, Scheme: f.scheme, Mapper: f.mapper})
	if err != nil {
		return fmt.Errorf("make client of %s: %w", config.Host, err)
	}
	p.client = client.WithFieldOwner(there, fieldManager)
	p.cache, err = cache.New(config, cache.Options{
		HTTPClient: transport, Scheme: f.scheme, Mapper: f.mapper,
		DefaultNamespaces:    map[string]cache.Config{p.namespace: {}},
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{api.LabelRemoteClusterID: f.clusterID}),
	})
	if err != nil {
		return fmt.Errorf("make cache of namespace %s at %s: %w", p.namespace, config.Host, err)
	}
	return nil
}

// run fills the cache until ctx ends, and tells when it is filled.
func (p *followed) run(ctx context.Context, changed func()) {
	for !p.mayLook(ctx) {
		select {
		case <-time.After(refusedPeriod):
		case <-ctx.Done():
			return
		}
	}
	go func() {
		if p.cache.WaitForCacheSync(ctx) {
			p.synced.Store(true)
			changed()
		}
	}()
	if err := p.cache.Start(ctx); err != nil {
		log.FromContext(ctx).Error(err, "watch the parameters of a peer", "peer", p.id)
	}
}

// mayLook asks once before watching: a watch that is refused is tried again every few seconds. A
// provider that does not answer may allow it.
func (p *followed) mayLook(ctx context.Context) bool {
	err := p.client.List(ctx, &netv1beta1.GatewayServerList{}, client.InNamespace(p.namespace), client.Limit(1))
	return !apierrors.IsForbidden(err)
}

// halt stops to follow the provider of a Secret, if it is followed.
func (f *follower) halt(secret types.NamespacedName) {
	f.mu.Lock()
	p := f.peers[secret]
	delete(f.peers, secret)
	f.mu.Unlock()
	if p != nil {
		p.stop()
	}
}
