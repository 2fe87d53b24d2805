// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
)

// Fleet holds a Link for each Secret with the kubeconfig of this cluster's control plane at a
// provider. It follows the Secrets in the manager's cache, and sends no request to a provider. Its
// zero value is empty.
type Fleet struct {
	mgr    manager.Manager
	mapper meta.RESTMapper
	ctx    context.Context // ends with the manager's caches
	cancel context.CancelFunc

	updating    sync.Mutex // held while a Secret is read and its link changed, so that the newest state wins
	mu          sync.Mutex
	links       map[types.NamespacedName]*Link
	subscribers []func(secret types.NamespacedName, id string)
}

// Register adds the fleet to the manager. It follows the Secrets in the manager's cache, and the
// labels of their namespaces.
func (f *Fleet) Register(mgr manager.Manager) error {
	f.mgr, f.mapper = mgr, StaticMapper(mgr.GetScheme())
	f.ctx, f.cancel = context.WithCancel(context.Background())
	secret := func(obj any) {
		if secret, ok := obj.(client.Object); ok && Labelled(secret) {
			f.update(client.ObjectKeyFromObject(secret))
		}
	}
	namespace := func(obj any) {
		if namespace, ok := obj.(client.Object); ok {
			for _, r := range SecretsIn(f.ctx, mgr.GetCache(), namespace) {
				f.update(r.NamespacedName)
			}
		}
	}
	return errors.Join(f.watch(&corev1.Secret{}, secret), f.watch(&corev1.Namespace{}, namespace), mgr.Add(f))
}

// watch calls observe with both states of an object that changes.
func (f *Fleet) watch(kind client.Object, observe func(any)) error {
	informer, err := f.GetCache().GetInformer(f.ctx, kind, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    observe,
			UpdateFunc: func(before, after any) { observe(before); observe(after) },
			DeleteFunc: func(obj any) {
				if unknown, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
					obj = unknown.Obj
				}
				observe(obj)
			},
		})
	}
	if err != nil {
		return fmt.Errorf("watch %T: %w", kind, err)
	}
	return nil
}

// GetCache returns the manager's cache. A runnable that has this method is one of the manager's
// caches: it starts before controllers, in every replica, and ends after the controllers that use
// its links.
func (f *Fleet) GetCache() cache.Cache { return f.mgr.GetCache() }

// Start closes all links when ctx ends.
func (f *Fleet) Start(ctx context.Context) error {
	<-ctx.Done()
	f.cancel()
	f.updating.Lock()
	defer f.updating.Unlock()
	f.mu.Lock()
	links := slices.Collect(maps.Values(f.links))
	f.mu.Unlock()
	for _, l := range links {
		l.close()
	}
	return nil
}

// update creates, updates or closes the link of one Secret, and calls the subscribers if the link
// is replaced.
func (f *Fleet) update(key types.NamespacedName) {
	f.updating.Lock()
	defer f.updating.Unlock()
	secret := &corev1.Secret{}
	err := f.GetCache().Get(f.ctx, key, secret)
	trusted := err == nil
	if trusted {
		trusted, err = IsControlPlane(f.ctx, f.GetCache(), secret)
	}
	if f.ctx.Err() != nil {
		return
	}
	if err != nil && !apierrors.IsNotFound(err) {
		log.Log.Error(err, "read a kubeconfig", "secret", key)
		return
	}
	before := f.Get(key)
	var after *Link
	if trusted {
		if after, err = f.updated(before, secret); err != nil {
			after = before // keeps the former access; replication reports the error
		}
	}
	if before == after {
		return
	}
	f.replace(key, before, after)
}

// replace sets the link of a Secret; nil = none.
func (f *Fleet) replace(key types.NamespacedName, before, after *Link) {
	f.mu.Lock()
	id := ""
	if after == nil {
		id = before.ID
		delete(f.links, key)
	} else {
		if f.links == nil {
			f.links = map[types.NamespacedName]*Link{}
		}
		id = after.ID
		f.links[key] = after
	}
	subscribers := slices.Clone(f.subscribers)
	f.mu.Unlock()
	if before != nil {
		before.close()
	}
	for _, changed := range subscribers {
		changed(key, id)
	}
}

// updated returns the link with the Secret's credentials: the same unless the Secret names another
// provider or namespace.
func (f *Fleet) updated(l *Link, secret *corev1.Secret) (*Link, error) {
	id, namespace := secret.Labels[api.LabelRemoteClusterID], secret.Annotations[api.AnnotationRemoteTenantNamespace]
	if l != nil && l.ID == id && l.Namespace == namespace {
		_, err := l.Update(secret.Data[api.KubeconfigField])
		return l, err
	}
	ctx, cancel := context.WithCancel(log.IntoContext(f.ctx, log.Log.WithValues("peer", id)))
	peer, err := New(ctx, secret.Data[api.KubeconfigField])
	if err == nil {
		var cluster *Cluster
		if cluster, err = NewCluster(peer.Config(), f.mgr.GetScheme(), f.mapper); err == nil {
			return &Link{
				Peer: peer, Cluster: cluster, ID: id, Namespace: namespace,
				ctx: ctx, cancel: cancel, copies: map[string]*Copy{},
			}, nil
		}
	}
	cancel()
	return nil, err
}

// Get returns the link of a Secret; nil if it has none: it holds no usable kubeconfig, or is not
// trusted.
func (f *Fleet) Get(secret types.NamespacedName) *Link {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.links[secret]
}

// Of returns the Secrets with links to a provider.
func (f *Fleet) Of(id string) []reconcile.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []reconcile.Request
	for key, l := range f.links {
		if l.ID == id {
			out = append(out, reconcile.Request{NamespacedName: key})
		}
	}
	return out
}

// Subscribe registers a function that is called with the Secret and the provider of each link that
// is created, replaced or closed. It must not block.
func (f *Fleet) Subscribe(changed func(secret types.NamespacedName, id string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subscribers = append(f.subscribers, changed)
}
