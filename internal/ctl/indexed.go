// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/liqo-go/liqo/api"
)

// Indexed returns mgr with a client that lists the objects of one peer by an index of
// api.LabelRemoteClusterID. Without the index, a cache compares the labels of all objects of the kind.
func Indexed(mgr manager.Manager) manager.Manager {
	return withClient{mgr, &indexed{Client: mgr.GetClient(), indexer: mgr.GetFieldIndexer()}}
}

// withClient is a manager with another client.
type withClient struct {
	manager.Manager
	client client.Client
}

func (m withClient) GetClient() client.Client { return m.client }

type indexed struct {
	client.Client
	indexer client.FieldIndexer
	kinds   sync.Map // reflect.Type of a list → *kindIndex
}

type kindIndex struct {
	mu   sync.Mutex
	done bool
}

// fieldPeer is the index of objects by their peer.
const fieldPeer = "peer"

func (c *indexed) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	var asked client.ListOptions
	asked.ApplyOptions(opts)
	if asked.LabelSelector == nil || asked.FieldSelector != nil {
		return c.Client.List(ctx, list, opts...)
	}
	switch list.(type) {
	case runtime.Unstructured, *metav1.PartialObjectMetadataList: // not in the indexed cache
		return c.Client.List(ctx, list, opts...)
	}
	if peer, ok := asked.LabelSelector.RequiresExactMatch(api.LabelRemoteClusterID); ok {
		if err := c.index(ctx, list); err != nil {
			return err
		}
		opts = append(opts, client.MatchingFields{fieldPeer: peer})
	}
	return c.Client.List(ctx, list, opts...)
}

// index adds the index of a list's kind to the cache, when the first list needs it.
func (c *indexed) index(ctx context.Context, list client.ObjectList) error {
	of, _ := c.kinds.LoadOrStore(reflect.TypeOf(list), &kindIndex{})
	k := of.(*kindIndex)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.done {
		return nil
	}
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return fmt.Errorf("index %T: %w", list, err)
	}
	kind, ok := reflect.New(reflect.TypeOf(items).Elem().Elem()).Interface().(client.Object)
	if !ok {
		return fmt.Errorf("index %T: its items are no objects", list)
	}
	if err := c.indexer.IndexField(ctx, kind, fieldPeer, peerOf); err != nil {
		return fmt.Errorf("index %T by peer: %w", list, err)
	}
	k.done = true
	return nil
}

func peerOf(obj client.Object) []string {
	if peer, ok := obj.GetLabels()[api.LabelRemoteClusterID]; ok {
		return []string{peer}
	}
	return nil
}
