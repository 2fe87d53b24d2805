// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// namespace is one mapped namespace with a cache for each cluster. The provider grants access by
// namespace, so each has its own caches.
type namespace struct {
	remote string
	home   cache.Cache // of the kinds without a cache of their own
	peer   cache.Cache
	synced map[*worker]*atomic.Bool
	cancel context.CancelFunc
}

func (ns *namespace) close() { ns.cancel() }

// ready reports whether the caches of a kind have synced.
func (ns *namespace) ready(w *worker) bool { return ns.synced[w].Load() }

// open starts the caches of a namespace. It does not wait for them. Each kind starts when its own
// caches have synced, so a kind that the provider refuses does not stop the others.
func (e *Engine) open(ctx context.Context, home, remote string) (*namespace, error) {
	ctx, cancel := context.WithCancel(ctx)
	ns := &namespace{remote: remote, synced: map[*worker]*atomic.Bool{}, cancel: cancel}
	if err := e.fill(ctx, ns, home); err != nil {
		cancel()
		return nil, fmt.Errorf("open namespace %s: %w", home, err)
	}
	for _, c := range []cache.Cache{ns.home, ns.peer} {
		go func() {
			if err := c.Start(ctx); err != nil {
				log.FromContext(ctx).Error(err, "run caches", "namespace", home, "peer", e.Peer)
			}
		}()
	}
	return ns, nil
}

func (e *Engine) fill(ctx context.Context, ns *namespace, home string) (err error) {
	atHome, atPeer := contents{}, contents{}
	for _, w := range e.kinds {
		atPeer[w.Remote] = content{selector: w.RemoteSelector, trim: w.TrimRemote}
		if w.Report != nil {
			atPeer[w.Report] = content{selector: w.ReportSelector, trim: w.TrimReport}
		}
		if w.HomeCache == nil {
			atHome[w.Home] = content{fields: w.HomeFields}
		}
	}
	if ns.home, err = newCache(e.Home, home, atHome); err != nil {
		return err
	}
	if ns.peer, err = newCache(e.Remote, ns.remote, atPeer); err != nil {
		return err
	}
	for _, w := range e.kinds {
		ns.synced[w] = &atomic.Bool{}
	}
	for _, w := range e.kinds {
		if err := w.attach(ctx, ns, home); err != nil {
			return err
		}
	}
	return nil
}

// attach starts the watches of a kind in a namespace, and enqueues all objects once they have
// synced.
func (w *worker) attach(ctx context.Context, ns *namespace, home string) error {
	key := func(obj client.Object) types.NamespacedName {
		return types.NamespacedName{Namespace: home, Name: w.homeName(obj)}
	}
	sawRemote := func(_, obj client.Object) {
		w.ledger.Shown(slot{atRemote, key(obj)}, obj.GetResourceVersion())
		w.queue.report(key(obj))
	}
	sawReport := func(before, obj client.Object) {
		if w.Pull != nil && (before == obj || w.HeedsReport == nil || w.HeedsReport(before, obj)) {
			w.queue.report(types.NamespacedName{Namespace: home, Name: obj.GetName()})
		}
	}
	sawOther := func(_, _ client.Object) {
		if ns.ready(w) {
			w.enqueueObjects(ctx, ns.home, w.Home, home)
		}
	}
	type watch struct {
		cache cache.Cache
		kind  client.Object
		saw   sawFunc
	}
	watches := []watch{{ns.peer, w.Remote, sawRemote}}
	if w.Report != nil {
		watches = append(watches, watch{ns.peer, w.Report, sawReport})
	}
	for _, kind := range w.AlsoWatches {
		watches = append(watches, watch{ns.home, kind, sawOther})
	}
	homeCache := w.HomeCache
	if homeCache == nil {
		homeCache = ns.home
		watches = append(watches, watch{ns.home, w.Home, w.sawHome})
	}
	var synced []toolscache.InformerSynced
	for _, each := range watches {
		_, s, err := w.watch(ctx, each.cache, each.kind, each.saw)
		if err != nil {
			return err
		}
		synced = append(synced, s)
	}
	go w.begin(ctx, ns, homeCache, home, synced)
	return nil
}

// begin starts a kind in a namespace once its caches have synced. It enqueues all objects, because
// earlier events were ignored.
func (w *worker) begin(
	ctx context.Context, ns *namespace, homeCache cache.Cache, home string, synced []toolscache.InformerSynced,
) {
	if !toolscache.WaitForCacheSync(ctx.Done(), synced...) {
		return
	}
	ns.synced[w].Store(true)
	w.enqueueObjects(ctx, homeCache, w.Home, home)
	remote, err := keysOf(ctx, ns.peer, w.engine.Home.Scheme(), w.Remote, "", w.homeName)
	if err != nil {
		log.FromContext(ctx).Error(err, "list remote objects to look at", "kind", w.Name)
	}
	for _, key := range remote {
		w.queue.Add(types.NamespacedName{Namespace: home, Name: key.Name})
	}
	for _, name := range w.Names.names(w.Name, home) { // their local objects may be deleted by now
		w.queue.Add(types.NamespacedName{Namespace: home, Name: name})
	}
	if w.engine.Synced != nil {
		w.engine.Synced(w.Name)
	}
}

// keysOf lists the keys of a kind in a cache; namespace "" = all. name returns the name in the key
// of an object.
func keysOf(
	ctx context.Context, r client.Reader, scheme *runtime.Scheme, kind client.Object, namespace string,
	name func(client.Object) string,
) ([]types.NamespacedName, error) {
	gvk, err := apiutil.GVKForObject(kind, scheme)
	if err != nil {
		return nil, err
	}
	objects, err := listOf(scheme, kind, gvk.GroupVersion().WithKind(gvk.Kind+"List"))
	if err != nil {
		return nil, err
	}
	if err := r.List(ctx, objects, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list %s: %w", gvk.Kind, err)
	}
	keys := make([]types.NamespacedName, 0, meta.LenList(objects))
	err = meta.EachListItem(objects, func(item runtime.Object) error {
		obj := item.(client.Object)
		keys = append(keys, types.NamespacedName{Namespace: obj.GetNamespace(), Name: name(obj)})
		return nil
	})
	return keys, err
}

// listOf returns an empty list for objects like kind.
func listOf(scheme *runtime.Scheme, kind client.Object, gvk schema.GroupVersionKind) (client.ObjectList, error) {
	if _, custom := kind.(*unstructured.Unstructured); custom {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk)
		return list, nil
	}
	list, err := scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	return list.(client.ObjectList), nil // as those of all kinds with objects
}
