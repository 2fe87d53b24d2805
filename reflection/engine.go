// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reflection keeps objects of this cluster and of a provider equal. One engine and a
// table of kinds serve two purposes: in the virtual kubelet the objects of offloaded namespaces
// (pods, services, configuration) are reflected to the provider and the state of the pods comes
// back; in the controller our own kinds are replicated to the peer (package replication).
//
//	home cluster                engine                 remote cluster
//	object ── event ──▶ queue ─▶ Push ── create, patch, delete ──▶ object with our marks
//	status ◀── patch ─── Pull ◀─ queue ◀── event ── object, or what was made from it
//
// What an object looks like on the other side is decided by the pure functions of package
// translate. The engine alone handles ownership, deletion, retries and namespaces:
//
//   - A remote object is ours if it carries our marks (labels). Caches at the remote hold only
//     those. Anything else of the same name is never touched: creation is a plain create, which
//     the API server refuses if the name is taken.
//   - A change is one merge patch with the UID of the object it was computed for, holding only
//     what differs; there is no server-side apply here, because apply would merge into a foreign
//     object instead of refusing, and would leave alone the keys others add to our data. The
//     field manager is still named, and tells which labels and annotations came from home.
//   - Deletion names the UID.
//   - Nothing is polled and nothing is written twice: every write waits for its own event
//     before the object is judged again (ledger).
//
// The engine does not know where its Views come from (Run makes them for the virtual kubelet),
// and does not know the Node object.
//
// Start reading at Kind, then Engine, then sync.
package reflection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/reference"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/ledger"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/reflection/translate"
)

// Config describes an engine.
type Config struct {
	// Peer is the cluster ID of the remote cluster.
	Peer string
	// Node is the virtual node, for metrics; empty if there is none.
	Node string
	// Home and Remote are the two sides.
	Home, Remote *remote.Cluster
	// Kinds are the kinds that are kept equal.
	Kinds []Kind
	// Events returns the writer of events of a source; nil = no events.
	Events func(source string) EventFunc
	// Released reports whether home objects need not wait for the peer any more, because it was
	// declared dead; nil = never.
	Released func(ctx context.Context) bool
	// Synced is called when a kind starts to be reconciled in a namespace; nil = not called.
	Synced func(kind string)

	metrics *metrics
}

// EventFunc writes an event on a home object; level is Normal or Warning.
type EventFunc func(home runtime.Object, level, reason, message string)

// Engine keeps the objects of two clusters equal. It does nothing until See is called once.
type Engine struct {
	Config
	kinds []*worker
	view  atomic.Pointer[translate.View]

	mu         sync.RWMutex
	namespaces map[string]*namespace // by home name
}

// slot names one object in one of the two clusters.
type slot struct {
	cluster cluster
	key     types.NamespacedName // of the home object
}

type cluster bool

const (
	atHome   cluster = false
	atRemote cluster = true
)

// worker reconciles the objects of one kind.
type worker struct {
	Kind
	engine *Engine
	queue  queue
	ledger ledger.Ledger[slot, struct{}] // writes that the cache of their cluster does not show yet
	events EventFunc

	refused ctl.Refused[types.NamespacedName]

	mu       sync.Mutex
	failures map[types.NamespacedName]string    // last message reported, so that it is reported once
	silence  map[types.NamespacedName]time.Time // since when the peer denies access to its readiness
}

// New returns an engine, which does nothing before Run.
func New(c Config) (*Engine, error) {
	if c.metrics == nil {
		m, err := newMetrics(nil)
		if err != nil {
			return nil, err
		}
		c.metrics = m
	}
	e, peer := &Engine{Config: c, namespaces: map[string]*namespace{}}, peerBudget()
	for _, kind := range c.Kinds {
		if kind.Workers == 0 {
			continue
		}
		if kind.Pull != nil && kind.Budget == nil {
			kind.Budget = answerBudget(peer)
		}
		w := &worker{
			Kind: kind, engine: e, queue: newQueue(),
			failures: map[types.NamespacedName]string{}, silence: map[types.NamespacedName]time.Time{},
			ledger: ledger.Ledger[slot, struct{}]{Patience: ledger.Patience},
		}
		w.events = func(runtime.Object, string, string, string) {}
		if c.Events != nil {
			w.events = c.Events(eventSource(kind.Name))
		}
		e.kinds = append(e.kinds, w)
	}
	return e, nil
}

// Run reconciles until ctx ends. Remote objects are not deleted then.
func (e *Engine) Run(ctx context.Context) error {
	var stop []func()
	defer func() {
		for _, f := range slices.Backward(stop) {
			f()
		}
	}()
	for _, w := range e.kinds {
		if w.HomeCache == nil {
			continue
		}
		remove, _, err := w.watch(ctx, w.HomeCache, w.Home, w.sawHome)
		if err != nil {
			return err
		}
		stop = append(stop, remove)
	}
	var running sync.WaitGroup
	for _, w := range e.kinds {
		for range w.Workers {
			running.Go(func() { w.work(ctx) })
		}
		running.Go(func() { w.refused.Probe(ctx, w.queue.Add) })
	}
	<-ctx.Done()
	for _, w := range e.kinds {
		w.queue.ShutDown()
	}
	e.mu.Lock()
	for _, ns := range e.namespaces {
		ns.close()
	}
	clear(e.namespaces)
	e.mu.Unlock()
	running.Wait()
	return nil
}

// See sets a new view. It opens the namespaces that are new in it, and closes those that it no
// longer has: the provider removes their remote objects with the namespace. Then it enqueues every
// object. Calls must not overlap. ctx is that of Run.
func (e *Engine) See(ctx context.Context, view translate.View) error {
	before := e.view.Swap(&view)
	e.mu.Lock()
	defer e.mu.Unlock()
	for home, ns := range e.namespaces {
		if view.Namespaces[home] != ns.remote {
			ns.close()
			delete(e.namespaces, home)
		}
	}
	for home, remote := range view.Namespaces {
		if e.namespaces[home] != nil || ctx.Err() != nil {
			continue
		}
		ns, err := e.open(ctx, home, remote)
		if err != nil {
			return err
		}
		e.namespaces[home] = ns
	}
	if before != nil || len(view.Namespaces) == 0 {
		log.FromContext(ctx).Info("view of the peer changed", "peer", e.Peer, "namespaces", len(view.Namespaces))
	}
	for _, w := range e.kinds {
		w.lookAtAll(ctx)
	}
	return nil
}

// seeOwn sets a view in which only Own differs, and enqueues the objects of kinds with a Report:
// only these show addresses. Calls must not overlap with See.
func (e *Engine) seeOwn(ctx context.Context, view translate.View) {
	e.view.Store(&view)
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, w := range e.kinds {
		if w.Report != nil {
			w.lookAtAll(ctx)
		}
	}
}

// namespace returns the mapped namespace; nil if it is not mapped.
func (e *Engine) namespace(home string) *namespace {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return e.namespaces[home]
}

// origin returns the home object of a remote object that this engine made; see origin in kinds.go.
func (e *Engine) origin(ctx context.Context, kind string, key types.NamespacedName) (*corev1.ObjectReference, error) {
	ns := e.namespace(key.Namespace)
	for _, w := range e.kinds {
		if w.Name != strings.TrimPrefix(kind, "Shadow") || ns == nil || !ns.ready(w) {
			continue
		}
		remote, err := get(ctx, ns.peer, types.NamespacedName{Namespace: ns.remote, Name: key.Name}, w.Remote)
		if remote == nil || err != nil {
			return nil, err
		}
		home, err := get(ctx, ns.home, types.NamespacedName{Namespace: key.Namespace, Name: w.homeName(remote)}, w.Home)
		if home == nil || err != nil {
			return nil, err
		}
		return reference.GetReference(e.Home.Scheme(), home)
	}
	return nil, nil
}

// lookAtAll enqueues all cached home objects of the kind. The engine is locked.
func (w *worker) lookAtAll(ctx context.Context) {
	if w.HomeCache != nil {
		w.lookAt(ctx, w.HomeCache, w.Home, "")
		return
	}
	for _, ns := range w.engine.namespaces {
		if ns.ready(w) {
			w.lookAt(ctx, ns.home, w.Home, "")
		}
	}
}

// lookAtNamespace enqueues the home objects of a namespace whose kinds have a HomeCache.
func (e *Engine) lookAtNamespace(ctx context.Context, namespace string) {
	for _, w := range e.kinds {
		if w.HomeCache != nil {
			w.lookAt(ctx, w.HomeCache, w.Home, namespace)
		}
	}
}

// lookAt enqueues the cached objects of a kind; namespace "" = all.
func (w *worker) lookAt(ctx context.Context, r client.Reader, kind client.Object, namespace string) {
	keys, err := keysOf(ctx, r, w.engine.Home.Scheme(), kind, namespace, client.Object.GetName)
	if err != nil {
		log.FromContext(ctx).Error(err, "list objects to look at", "kind", w.Name)
		return
	}
	for _, key := range keys {
		w.queue.Add(key)
	}
}

// sawHome enqueues a home object after an event.
func (w *worker) sawHome(obj client.Object) {
	if !w.concerns(obj) {
		return
	}
	key := client.ObjectKeyFromObject(obj)
	w.ledger.Shown(slot{atHome, key}, obj.GetResourceVersion())
	w.queue.Add(key)
}

// concerns reports whether a home object is, or may have been, reflected by this engine. Engines of
// other peers use the same finalizer, but in other namespaces.
func (w *worker) concerns(home client.Object) bool {
	held := w.Finalizer != "" && controllerutil.ContainsFinalizer(home, w.Finalizer)
	return w.mine(home) || held && w.engine.namespace(home.GetNamespace()) != nil
}

// watch calls saw for every event of a kind in a cache, until remove is called. synced reports
// whether saw has been called for all objects of the initial list.
func (w *worker) watch(
	ctx context.Context, c cache.Informers, kind client.Object, saw func(client.Object),
) (remove func(), synced toolscache.InformerSynced, err error) {
	informer, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, nil, fmt.Errorf("watch %s: %w", w.Name, err)
	}
	registration, err := informer.AddEventHandler(handler(saw))
	if err != nil {
		return nil, nil, fmt.Errorf("watch %s: %w", w.Name, err)
	}
	remove = func() { _ = informer.RemoveEventHandler(registration) } // fails only for a stopped informer
	return remove, registration.HasSynced, nil
}

// handler calls saw for every event, with the last known state of a deleted object.
func handler(saw func(client.Object)) toolscache.ResourceEventHandler {
	see := func(obj any) {
		if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = tombstone.Obj
		}
		if o, ok := obj.(client.Object); ok {
			saw(o)
		}
	}
	update := func(_, obj any) { see(obj) }
	return toolscache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: update, DeleteFunc: see}
}

func (w *worker) work(ctx context.Context) {
	for {
		key, shutdown := w.queue.Get()
		if shutdown {
			return
		}
		w.one(ctx, key)
		w.queue.Done(key)
	}
}

func (w *worker) one(ctx context.Context, key types.NamespacedName) {
	view := w.engine.view.Load()
	if view == nil || ctx.Err() != nil {
		return
	}
	counters := []string{key.Namespace, w.Name, w.engine.Peer, w.engine.Node}
	v := *view
	v.AllowList = w.AllowList
	after, err := w.sync(ctx, key, v)
	if errors.Is(err, errNotOurs) {
		err = nil
	} else {
		w.engine.metrics.items.WithLabelValues(counters...).Inc()
	}
	switch {
	case refusal(err) != nil:
		w.refused.Add(key)
	case err == nil && after == 0: // otherwise the peer may not have been asked
		for _, other := range w.refused.Accepted(key) {
			w.queue.Add(other)
		}
	}
	if after > 0 {
		w.queue.AddAfter(key, after)
	}
	if err != nil && ctx.Err() == nil {
		w.engine.metrics.errors.WithLabelValues(counters...).Inc()
		if !errors.Is(err, errTooMany) || after == 0 { // otherwise the time of the retry is known
			w.queue.AddRateLimited(key)
			return
		}
	}
	w.queue.Forget(key)
}
