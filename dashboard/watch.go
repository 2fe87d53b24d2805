// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/view"
)

const (
	// pause is how long changes are collected before a snapshot may be taken of them.
	pause = 50 * time.Millisecond
	// refresh is how often a snapshot is taken without changes: errors of watches come and go unseen.
	refresh = 10 * time.Second
	// longest bounds the pauses after which snapshots are taken while kinds are being read: the end of an empty list is
	// no event.
	longest = time.Second
	// being is the text of kinds that are not read yet.
	being = "being read"
)

// Watcher keeps snapshots of a cluster up to date.
type Watcher struct {
	// Base holds what does not come from lists: cluster ID, namespace, command, and the kinds hidden from the user.
	Base view.Snapshot
	// Cache reads the cluster. Run starts it.
	Cache ctrlcache.Cache
	// Errors returns why watches fail at present; empty if they do not.
	Errors func() string
	// Metrics returns the metrics that a gateway pod serves; nil = they are not read.
	Metrics func(context.Context, *corev1.Pod) ([]byte, error)

	meter *meter
}

// First returns the snapshot before anything is read.
func (w *Watcher) First() *view.Snapshot { return w.take(context.Background(), nil) }

// Run renews snapshots whenever the cluster changes, until ctx ends.
func (w *Watcher) Run(ctx context.Context, into *Snapshots) error {
	w.Base.Hidden = maps.Clone(w.Base.Hidden)
	poke := make(chan struct{}, 1)
	changed := func(any) {
		select {
		case poke <- struct{}{}:
		default: // a snapshot is due anyway
		}
	}
	informers := map[string]ctrlcache.Informer{}
	for _, list := range w.Base.Lists() {
		kind := view.KindOf(list)
		if _, hidden := w.Base.Hidden[kind]; hidden {
			continue
		}
		informer, err := w.Cache.GetInformer(ctx, view.NewItem(list).(client.Object),
			ctrlcache.BlockUntilSynced(false))
		if meta.IsNoMatchError(err) {
			w.Base.Hidden[kind] = "the cluster does not know this kind"
			continue
		}
		if err != nil {
			return fmt.Errorf("watch %s: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: changed,
			UpdateFunc: func(_, object any) { changed(object) }, DeleteFunc: changed}); err != nil {
			return fmt.Errorf("watch %s: %w", kind, err)
		}
		informers[kind] = informer
	}
	if w.Metrics != nil && informers["Pod"] != nil {
		w.meter = newMeter(w.Metrics)
		go w.meterTraffic(ctx, into, changed)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Cache.Start(ctx) }()
	for reading := pause; ; reading = min(2*reading, longest) {
		next := refresh
		for _, informer := range informers {
			if !informer.HasSynced() {
				next = reading
			}
		}
		into.Renew(func() *view.Snapshot { return w.take(ctx, informers) })
		select {
		case <-poke:
			wait(ctx, pause)
		case <-time.After(next):
		case err := <-ended:
			return err
		}
	}
}

// wait ends after a time, or with ctx.
func wait(ctx context.Context, long time.Duration) {
	select {
	case <-time.After(long):
	case <-ctx.Done():
	}
}

// take returns a snapshot of what the informers hold, in order. Kinds that are not read yet are hidden.
func (w *Watcher) take(ctx context.Context, informers map[string]ctrlcache.Informer) *view.Snapshot {
	out := &view.Snapshot{ClusterID: w.Base.ClusterID, Namespace: w.Base.Namespace, Command: w.Base.Command,
		Namespaces: w.Base.Namespaces, Hidden: maps.Clone(w.Base.Hidden), Stale: w.Errors()}
	for _, list := range out.Lists() {
		kind := view.KindOf(list)
		informer, watched := informers[kind]
		_, hidden := out.Hidden[kind]
		switch {
		case hidden:
		case !watched || !informer.HasSynced():
			out.Hidden[kind] = being
		default:
			if err := w.Cache.List(ctx, list.(client.ObjectList), client.UnsafeDisableDeepCopy); err != nil {
				out.Hidden[kind] = err.Error()
			}
		}
	}
	if w.meter != nil {
		out.Traffic = w.meter.traffic()
	}
	out.Sort() // caches list in any order
	return out
}

// WatchErrors remembers the last error of a watch.
type WatchErrors struct{ last atomic.Pointer[watchError] }

type watchError struct {
	text string
	at   time.Time
}

// errorLasts is how long an error is shown after it came last: informers try again in at most 30 s
// (defaultBackoffMax in reflector.go of client-go).
const errorLasts = 45 * time.Second

// Handle takes an error of an informer. Watches that end in good order, or that are too old to go on, begin again at
// once: that is no error.
func (e *WatchErrors) Handle(_ context.Context, _ *cache.Reflector, err error) {
	if errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	e.last.Store(&watchError{err.Error(), time.Now()})
}

// Text returns the last error; empty if it is old.
func (e *WatchErrors) Text() string {
	if last := e.last.Load(); last != nil && time.Since(last.at) < errorLasts {
		return last.text
	}
	return ""
}
