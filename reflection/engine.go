// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reflection keeps objects of this cluster and of a provider equal, with one engine and a
// table of kinds. In the virtual kubelet it reflects the objects of offloaded namespaces (pods,
// services, configuration) to the provider, and pulls the status of the pods. In the controller it
// replicates our own kinds to the peer (package replication). The home cluster is the one whose
// objects are pushed: the consumer, except for events.
//
//	home cluster                engine                 remote cluster
//	object ── event ──▶ queue ─▶ Push ── create, patch, delete ──▶ object with our labels
//	status ◀── patch ─── Pull ◀─ queue ◀── event ── object, or what was made from it
//
// The pure functions of package translate compute the objects and statuses. The engine alone
// handles ownership, deletion, retries and namespaces:
//
//   - A remote object is ours if it has our ownership labels. Caches of the remote cluster hold
//     only those. Another object of the same name is never changed: the engine sends a plain
//     create, which the API server refuses if the name is taken.
//   - A change is one merge patch of what differs, with the UID of the object it was computed for.
//     Server-side apply would merge into an object of another owner instead of refusing it, and
//     would keep keys that others add to our data. The field manager of the patch is still ours:
//     it shows which labels and annotations are reflected.
//   - A deletion has the UID as precondition.
//   - Nothing is polled, and nothing is written twice: after a write, the object is reconciled
//     again only when the write's own event has been observed (ledger).
//
// The engine gets its Views from its caller (Run computes them for the virtual kubelet), and does
// not use the Node object.
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
	// newer knows which fields of the kinds our types lack; nil = none.
	newer *newer
}

// EventFunc writes an event on a home object; level is Normal or Warning.
type EventFunc func(home runtime.Object, level, reason, message string)

// Engine keeps the objects of two clusters equal. It does nothing until SetView is called once.
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
	queue  *queue
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
	if c.newer == nil {
		c.newer = newNewer()
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
	stop = append(stop, e.metrics.waits.include(e.kinds))
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

// SetView sets a new view. It opens the namespaces that are new in it, and closes those that it no
// longer has: the provider removes their remote objects with the namespace. Then it enqueues every
// object. Calls must not overlap. ctx is that of Run.
func (e *Engine) SetView(ctx context.Context, view translate.View) error {
	before := e.view.Swap(&view)
	e.mu.Lock()
	defer e.mu.Unlock()
	for home, ns := range e.namespaces {
		if view.Namespaces[home] != ns.remote {
			ns.close()
			delete(e.namespaces, home)
			e.enqueueWaiting(home)
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
		w.enqueueAll(ctx)
	}
	return nil
}

// enqueueAll enqueues all home objects.
func (e *Engine) enqueueAll(ctx context.Context) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, w := range e.kinds {
		w.enqueueAll(ctx)
	}
}

// setOwn sets a view in which only Own differs, and enqueues the objects of kinds with a Report:
// only these show addresses. Calls must not overlap with SetView.
func (e *Engine) setOwn(ctx context.Context, view translate.View) {
	e.view.Store(&view)
	e.mu.RLock()
	defer e.mu.RUnlock()
	for _, w := range e.kinds {
		if w.Report != nil {
			w.enqueueAll(ctx)
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

// enqueueAll enqueues all cached home objects of the kind. The engine is locked.
func (w *worker) enqueueAll(ctx context.Context) {
	if w.HomeCache != nil {
		w.enqueueObjects(ctx, w.HomeCache, w.Home, "")
		return
	}
	for _, ns := range w.engine.namespaces {
		if ns.ready(w) {
			w.enqueueObjects(ctx, ns.home, w.Home, "")
		}
	}
}

// enqueueNamespace enqueues the home objects of a namespace whose kinds have a HomeCache.
func (e *Engine) enqueueNamespace(ctx context.Context, namespace string) {
	for _, w := range e.kinds {
		if w.HomeCache != nil {
			w.enqueueObjects(ctx, w.HomeCache, w.Home, namespace)
		}
	}
}

// enqueueWaiting enqueues the objects that wait for the caches of a namespace, which was closed.
func (e *Engine) enqueueWaiting(namespace string) {
	for _, w := range e.kinds {
		for _, key := range w.queue.waiting(namespace) {
			w.queue.Add(key)
		}
	}
}

// enqueueObjects enqueues the cached objects of a kind; namespace "" = all.
func (w *worker) enqueueObjects(ctx context.Context, r client.Reader, kind client.Object, namespace string) {
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
func (w *worker) sawHome(before, obj client.Object) {
	if !w.concerns(obj) {
		return
	}
	key := client.ObjectKeyFromObject(obj)
	w.ledger.Shown(slot{atHome, key}, obj.GetResourceVersion())
	if before == nil || before == obj || w.Heeds == nil || w.Heeds(before, obj) {
		w.queue.Add(key)
	}
}

// concerns reports whether a home object is, or may have been, reflected by this engine. Engines of
// other peers use the same finalizer, but in other namespaces.
func (w *worker) concerns(home client.Object) bool {
	held := w.Finalizer != "" && controllerutil.ContainsFinalizer(home, w.Finalizer)
	return w.selects(home) || held && w.engine.namespace(home.GetNamespace()) != nil
}

// sawFunc handles an event of an object. before is nil for a created object; for a deleted one it is
// the object itself, the last known state.
type sawFunc func(before, obj client.Object)

// watch calls saw for every event of a kind in a cache, until remove is called. synced reports
// whether saw has been called for all objects of the initial list.
func (w *worker) watch(
	ctx context.Context, c cache.Informers, kind client.Object, saw sawFunc,
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

// handler calls saw for every event.
func handler(saw sawFunc) toolscache.ResourceEventHandler {
	update := func(before, obj any) {
		from, _ := before.(client.Object)
		if to, ok := obj.(client.Object); ok {
			saw(from, to)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { update(nil, obj) }, UpdateFunc: update,
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			update(obj, obj)
		},
	}
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
	why := w.queue.begin(key)
	v := *view
	v.AllowList = w.AllowList
	after, err := w.sync(ctx, key, v)
	switch {
	case errors.Is(err, errNotReady), errors.Is(err, errLate):
		w.queue.wait(key, why)
		err = nil
	case errors.Is(err, errNotOurs):
		err = nil
	default:
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
		w.queue.wait(key, why)
		if !errors.Is(err, errTooMany) || after == 0 { // otherwise the time of the retry is known
			w.queue.AddRateLimited(key)
			return
		}
	}
	w.queue.Forget(key)
}
