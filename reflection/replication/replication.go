// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package replication replicates our own kinds to the providers of this cluster: it pushes requests
// (spec) and pulls answers (status). For each control-plane kubeconfig Secret, one engine of
// package reflection runs between the Secret's namespace and the tenant namespace at the provider.
//
//	Secret created   ──▶ finalizer added, engine started
//	Secret changed   ──▶ engine continues with the new credentials
//	Secret deleted   ──▶ engine continues, or is started, until the copies of objects that are
//	                     being deleted are gone; then finalizers are removed from other objects,
//	                     the engine is stopped, and the Secret released
//
// It does not decide what is requested of a peer, and does not reflect the objects of users.
//
// Start reading at replicator.Reconcile.
package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/reflection"
	"github.com/liqo-go/liqo/reflection/translate"
)

// Options configures the replication.
type Options struct {
	// ClusterID is the ID of this cluster.
	ClusterID string
	// Links gives access to the providers.
	Links *remote.Fleet
}

// Controllers returns the controllers of the replication.
func Controllers(o Options) []ctl.Registrar {
	return []ctl.Registrar{&replicator{Options: o, peers: map[types.NamespacedName]*peer{}}}
}

// replicator starts and stops one engine for each control-plane kubeconfig Secret.
type replicator struct {
	Options
	client client.Client
	mgr    manager.Manager
	home   *remote.Cluster

	mu    sync.Mutex
	peers map[types.NamespacedName]*peer // by Secret
}

// peer is one running engine.
type peer struct {
	link       *remote.Link
	kubeconfig []byte // in use
	stop       func() // returns when the engine has ended
}

// Register adds the replication to the manager.
func (r *replicator) Register(mgr manager.Manager) error {
	home, err := remote.NewCluster(mgr.GetConfig(), mgr.GetScheme(), remote.StaticMapper(mgr.GetScheme()))
	if err != nil {
		return err
	}
	r.client, r.mgr, r.home = mgr.GetClient(), mgr, home
	changed := &ctl.Source{}
	r.Links.Subscribe(func(secret types.NamespacedName, _ string) { changed.Wake(secret) })
	b := builder.ControllerManagedBy(mgr).Named("replication").
		For(&corev1.Secret{}, builder.WithPredicates(predicate.NewPredicateFuncs(remote.Labelled))).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.secretsInside)).
		Watches(&corev1beta1.ForeignCluster{}, handler.EnqueueRequestsFromMapFunc(r.secretsOf)).
		WatchesRawSource(changed).
		WithOptions(ctl.Options())
	for _, kind := range r.kinds("", "") {
		b = b.Watches(kind.Home, handler.EnqueueRequestsFromMapFunc(r.secretsIn))
	}
	return errors.Join(b.Complete(r), mgr.Add(manager.RunnableFunc(r.haltAll)))
}

// haltAll stops all engines when ctx ends. The manager waits for it before the links end, which
// engines use.
func (r *replicator) haltAll(ctx context.Context) error {
	<-ctx.Done()
	for _, secret := range r.running(func(types.NamespacedName, *peer) bool { return true }) {
		r.halt(secret.NamespacedName)
	}
	return nil
}

// secretsOf maps a ForeignCluster, which may have been declared dead, to the Secrets that wait for
// it.
func (r *replicator) secretsOf(_ context.Context, fc client.Object) []reconcile.Request {
	return r.running(func(_ types.NamespacedName, p *peer) bool { return p.link.ID == fc.GetName() })
}

// secretsIn maps a replicated object to the Secrets that may wait for its deletion.
func (r *replicator) secretsIn(_ context.Context, obj client.Object) []reconcile.Request {
	if obj.GetDeletionTimestamp() == nil {
		return nil
	}
	return r.running(func(key types.NamespacedName, _ *peer) bool { return key.Namespace == obj.GetNamespace() })
}

func (r *replicator) secretsInside(ctx context.Context, namespace client.Object) []reconcile.Request {
	return remote.SecretsIn(ctx, r.client, namespace)
}

func (r *replicator) running(want func(types.NamespacedName, *peer) bool) []reconcile.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []reconcile.Request
	for key, p := range r.peers {
		if want(key, p) {
			out = append(out, reconcile.Request{NamespacedName: key})
		}
	}
	return out
}

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// Reconcile starts, updates or stops the engine of one Secret.
func (r *replicator) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{}
	err := r.client.Get(ctx, req.NamespacedName, secret)
	switch {
	case apierrors.IsNotFound(err):
		r.halt(req.NamespacedName)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("get secret %s: %w", req, err)
	case secret.DeletionTimestamp != nil:
		return reconcile.Result{}, r.finish(ctx, secret)
	}
	enters, err := remote.IsControlPlane(ctx, r.client, secret)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !enters {
		r.halt(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, r.ensure(ctx, secret)
}

// ensure starts the engine of a Secret, or updates its credentials.
func (r *replicator) ensure(ctx context.Context, secret *corev1.Secret) error {
	key := client.ObjectKeyFromObject(secret)
	id, namespace := secret.Labels[api.LabelRemoteClusterID], secret.Annotations[api.AnnotationRemoteTenantNamespace]
	if namespace == "" {
		return reconcile.TerminalError(fmt.Errorf(
			"secret %s: annotation %s is missing; set it to the tenant namespace at %s",
			key, api.AnnotationRemoteTenantNamespace, id))
	}
	kubeconfig := secret.Data[api.KubeconfigField]
	if err := remote.Usable(kubeconfig); err != nil {
		return reconcile.TerminalError(fmt.Errorf("secret %s: %w", key, err))
	}
	link := r.Links.Get(key)
	p := r.peer(key)
	if link == nil || link.ID != id || link.Namespace != namespace {
		return nil // the new link enqueues the Secret
	}
	if p != nil && p.link == link && bytes.Equal(p.kubeconfig, kubeconfig) {
		return nil
	}
	log.FromContext(ctx).Info(fmt.Sprintf("Processing Secret %q", key))
	if p != nil && p.link == link {
		p.kubeconfig = kubeconfig
		return nil
	}
	r.halt(key)
	if err := r.patchFinalizer(ctx, secret, api.FinalizerReplicator, controllerutil.AddFinalizer); err != nil {
		return err
	}
	return r.start(ctx, key, &peer{link: link, kubeconfig: kubeconfig})
}

// start runs an engine; ctx is that of the controller's run and outlives the reconciliation.
func (r *replicator) start(ctx context.Context, key types.NamespacedName, p *peer) error {
	logger := log.FromContext(ctx)
	kinds := r.kinds(p.link.ID, key.Namespace)
	names := map[string]string{}
	logger.Info(fmt.Sprintf("[%s] Starting reflection towards remote cluster", p.link.ID))
	for _, kind := range kinds {
		names[kind.Name] = resource(kind)
		logger.Info(fmt.Sprintf("[%s] Starting reflection of %s", p.link.ID, names[kind.Name]))
	}
	engine, err := reflection.New(reflection.Config{
		Peer: p.link.ID, Home: r.home, Remote: p.link.Cluster, Kinds: kinds, Events: r.events,
		Released: func(ctx context.Context) bool { return r.dead(ctx, p.link.ID) },
		Synced: func(kind string) {
			logger.Info(fmt.Sprintf("[%s] Reflection of %s correctly started", p.link.ID, names[kind]))
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := engine.Run(ctx); err != nil {
			logger.Error(err, "replicate", "peer", p.link.ID)
		}
	}()
	p.stop = func() { cancel(); <-ended }
	r.mu.Lock()
	r.peers[key] = p
	r.mu.Unlock()
	return engine.SetView(ctx, translate.View{
		Consumer: r.ClusterID, Provider: p.link.ID, Namespaces: map[string]string{key.Namespace: p.link.Namespace},
	})
}

// peer returns the engine of a Secret; nil if none runs.
func (r *replicator) peer(secret types.NamespacedName) *peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peers[secret]
}

// halt stops the engine of a Secret, if one runs.
func (r *replicator) halt(secret types.NamespacedName) {
	r.mu.Lock()
	p := r.peers[secret]
	delete(r.peers, secret)
	r.mu.Unlock()
	if p != nil {
		p.stop()
	}
}

// finish releases a deleted Secret once no object being deleted needs it, or the peer is dead. It
// removes our finalizer from the remaining objects: nothing could remove it later.
func (r *replicator) finish(ctx context.Context, secret *corev1.Secret) error {
	key := client.ObjectKeyFromObject(secret)
	if !controllerutil.ContainsFinalizer(secret, api.FinalizerReplicator) {
		r.halt(key)
		return nil
	}
	id := secret.Labels[api.LabelRemoteClusterID]
	held, err := r.held(ctx, id, secret.Namespace)
	if err != nil {
		return err
	}
	if !r.dead(ctx, id) {
		if wait, err := r.mustWait(ctx, secret, held); wait || err != nil {
			return err // an event follows their deletion
		}
	}
	r.halt(key)
	if held, err = r.held(ctx, id, secret.Namespace); err != nil { // the engine may have added finalizers
		return err
	}
	for _, obj := range held {
		if err := r.patchFinalizer(ctx, obj, api.FinalizerReplicated, controllerutil.RemoveFinalizer); err != nil {
			return err
		}
	}
	return r.patchFinalizer(ctx, secret, api.FinalizerReplicator, controllerutil.RemoveFinalizer)
}

// mustWait reports whether an engine works on the deletion of one of these objects. If this process
// started after the Secret was deleted, no engine runs yet. Without a usable kubeconfig none will.
func (r *replicator) mustWait(ctx context.Context, secret *corev1.Secret, held []client.Object) (bool, error) {
	going := false
	for _, obj := range held {
		deleting, err := r.isBeingDeleted(ctx, obj)
		if err != nil {
			return false, err
		}
		going = going || deleting
	}
	if !going || r.peer(client.ObjectKeyFromObject(secret)) != nil {
		return going, nil
	}
	if enters, err := remote.IsControlPlane(ctx, r.client, secret); !enters || err != nil {
		return false, err
	}
	err := r.ensure(ctx, secret)
	if errors.Is(err, reconcile.TerminalError(nil)) {
		return false, nil
	}
	return err == nil, err
}

// +kubebuilder:rbac:groups=authentication.liqo.io,resources=identities,verbs=get

// isBeingDeleted reports whether an object is being deleted, or about to be: the Secret and Renew
// of an Identity are deleted with it, and the garbage collector may reach the Secret first. It
// reads from the API server, because a cache may be older than the collector's view.
func (r *replicator) isBeingDeleted(ctx context.Context, obj client.Object) (bool, error) {
	owner := metav1.GetControllerOf(obj)
	if obj.GetDeletionTimestamp() != nil || owner == nil || owner.Kind != "Identity" {
		return obj.GetDeletionTimestamp() != nil, nil
	}
	key := types.NamespacedName{Namespace: obj.GetNamespace(), Name: owner.Name}
	identity, err := ctl.Optional(ctx, r.mgr.GetAPIReader(), key, &authv1beta1.Identity{})
	if err != nil {
		return false, err
	}
	return identity == nil || identity.UID != owner.UID || identity.DeletionTimestamp != nil, nil
}

// patchFinalizer adds or removes a finalizer; change is a function of controllerutil.
func (r *replicator) patchFinalizer(
	ctx context.Context, obj client.Object, finalizer string, change func(client.Object, string) bool,
) error {
	after := obj.DeepCopyObject().(client.Object)
	if !change(after, finalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(obj, client.MergeFromWithOptimisticLock{})
	if err := r.client.Patch(ctx, after, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patch finalizers of %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
	}
	return nil
}

// +kubebuilder:rbac:groups=core.liqo.io,resources=foreignclusters,verbs=get;list;watch

// dead reports whether a user has declared the peer dead, and it does not answer either.
func (r *replicator) dead(ctx context.Context, id string) bool {
	fc := &corev1beta1.ForeignCluster{}
	err := r.client.Get(ctx, types.NamespacedName{Name: id}, fc)
	if err != nil || fc.Annotations[api.AnnotationPermanentlyUnreachable] != api.True {
		return false
	}
	return !slices.ContainsFunc(fc.Status.Conditions, func(c corev1beta1.Condition) bool {
		return c.Type == corev1beta1.APIServerStatusCondition && c.Status == corev1beta1.ConditionEstablished
	})
}

// events returns a writer of events with the manager's recorder.
func (r *replicator) events(source string) reflection.EventFunc {
	recorder := ctl.Recorder(r.mgr, source)
	return func(obj runtime.Object, level, reason, message string) {
		recorder.Eventf(obj, nil, level, reason, "Replicate", "%s", message)
	}
}
