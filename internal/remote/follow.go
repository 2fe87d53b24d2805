// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/liqo-go/liqo/api"
)

// +kubebuilder:rbac:groups="",resources=secrets,namespace=offloaded,verbs=get;list;watch

// Follow waits until the Secret holds a usable kubeconfig, returns the peer and keeps it up to date
// with the Secret until ctx ends. It fails only when ctx ends before.
func Follow(ctx context.Context, local *rest.Config, secret types.NamespacedName) (*Peer, error) {
	clients, err := kubernetes.NewForConfig(local)
	if err != nil {
		return nil, fmt.Errorf("make client of the home cluster: %w", err)
	}
	f := &follower{first: make(chan *Peer, 1), secret: secret}
	only := fields.OneTermEqualSelector("metadata.name", secret.Name)
	lw := cache.NewListWatchFromClient(clients.CoreV1().RESTClient(), "secrets", secret.Namespace, only)
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: lw,
		ObjectType:    &corev1.Secret{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { f.observe(ctx, obj) },
			UpdateFunc: func(_, obj any) { f.observe(ctx, obj) },
		},
	})
	go informer.RunWithContext(ctx)
	select {
	case peer := <-f.first:
		return peer, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for kubeconfig secret %s: %w", secret, context.Cause(ctx))
	}
}

// follower updates a peer with the states of one Secret. Its methods are called one after another.
type follower struct {
	secret types.NamespacedName
	peer   *Peer
	first  chan *Peer
}

func (f *follower) observe(ctx context.Context, obj any) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return
	}
	logger := log.FromContext(ctx).WithValues("secret", f.secret.String())
	if f.peer == nil {
		peer, err := newPeer(ctx, secret.Data[api.KubeconfigField], ordinary)
		if err != nil {
			logger.Error(err, "kubeconfig secret is not usable, waiting for a change")
			return
		}
		f.peer = peer
		f.first <- peer
		return
	}
	changed, err := f.peer.Update(secret.Data[api.KubeconfigField])
	switch {
	case err != nil:
		logger.Error(err, "changed kubeconfig secret is not usable, going on with the former one")
	case changed:
		logger.Info("credentials of the peer changed")
	}
}
