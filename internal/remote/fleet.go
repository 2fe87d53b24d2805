// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/ctl"
)

// Fleet has a Link for each Secret with the kubeconfig by which this cluster's control plane enters a provider. It
// follows the Secrets in the manager's cache, and asks nothing of a provider. Its zero value is empty.
type Fleet struct {
	looking sync.Mutex // held while a Secret is read and its link changed: of two looks the later one counts
	mu      sync.Mutex
	links   map[types.NamespacedName]*Link
	sources []*ctl.Source
}

// Link is the way to one provider.
type Link struct {
	*Peer
	// ID is the provider's cluster ID, Namespace this cluster's tenant namespace there; empty = the Secret names none.
	ID, Namespace string

	ctx    context.Context // ends with the link
	cancel context.CancelFunc
	mu     sync.Mutex
	copies map[string]*Copy
}

// Register has the fleet follow the Secrets in mgr's cache, and the labels of their namespaces.
func (f *Fleet) Register(mgr manager.Manager) error {
	ctx := context.Background() // links end with their Secrets, or the process
	secrets, err := mgr.GetCache().GetInformer(ctx, &corev1.Secret{})
	if err != nil {
		return fmt.Errorf("watch secrets: %w", err)
	}
	namespaces, err := mgr.GetCache().GetInformer(ctx, &corev1.Namespace{})
	if err != nil {
		return fmt.Errorf("watch namespaces: %w", err)
	}
	look := func(obj any) {
		secret, ok := obj.(client.Object)
		if ok && Labelled(secret) {
			f.look(ctx, mgr.GetCache(), client.ObjectKeyFromObject(secret))
		}
	}
	inside := func(obj any) {
		if namespace, ok := obj.(client.Object); ok {
			for _, r := range SecretsIn(ctx, mgr.GetCache(), namespace) {
				f.look(ctx, mgr.GetCache(), r.NamespacedName)
			}
		}
	}
	_, err = secrets.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: look, UpdateFunc: func(before, after any) { look(before); look(after) }, DeleteFunc: func(obj any) {
			if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			look(obj)
		},
	})
	if err != nil {
		return fmt.Errorf("watch secrets: %w", err)
	}
	_, err = namespaces.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: inside, UpdateFunc: func(_, after any) { inside(after) }})
	if err != nil {
		return fmt.Errorf("watch namespaces: %w", err)
	}
	return nil
}

// look brings the link of one Secret in line with it, and wakes who uses it if it is another one.
func (f *Fleet) look(ctx context.Context, r client.Reader, key types.NamespacedName) {
	f.looking.Lock()
	defer f.looking.Unlock()
	secret := &corev1.Secret{}
	err := r.Get(ctx, key, secret)
	enters := err == nil
	if enters {
		enters, err = IsControlPlane(ctx, r, secret)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		log.Log.Error(err, "read a kubeconfig", "secret", key)
		return
	}
	f.mu.Lock()
	before := f.links[key]
	after := before
	if !enters {
		after = nil
	} else if next, err := before.updated(secret); err == nil {
		after = next
	} // else the former access goes on; replication reports what is wrong
	if after == nil {
		delete(f.links, key)
	} else if f.links == nil {
		f.links = map[types.NamespacedName]*Link{key: after}
	} else {
		f.links[key] = after
	}
	sources := slices.Clone(f.sources)
	f.mu.Unlock()
	if before == after {
		return
	}
	if before != nil {
		before.cancel()
	}
	for _, s := range sources {
		s.Wake(key)
	}
}

// updated is the link with the Secret's credentials: l itself unless the Secret leads to another provider or namespace.
func (l *Link) updated(secret *corev1.Secret) (*Link, error) {
	id, namespace := secret.Labels[api.LabelRemoteClusterID], secret.Annotations[api.AnnotationRemoteTenantNamespace]
	if l != nil && l.ID == id && l.Namespace == namespace {
		_, err := l.Update(secret.Data[api.KubeconfigField])
		return l, err
	}
	peer, err := New(secret.Data[api.KubeconfigField])
	if err != nil {
		return nil, err
	}
	next := &Link{Peer: peer, ID: id, Namespace: namespace, copies: map[string]*Copy{}}
	next.ctx, next.cancel = context.WithCancel(context.Background())
	return next, nil
}

// Get is the link of a Secret; nil if it has none: it holds no usable kubeconfig, or does not lie where it should.
func (f *Fleet) Get(secret types.NamespacedName) *Link {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.links[secret]
}

// Of are the Secrets whose links lead to a provider.
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

// Source wakes the Secrets whose link is another one than before, or came or went.
func (f *Fleet) Source() *ctl.Source {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &ctl.Source{}
	f.sources = append(f.sources, s)
	return s
}
