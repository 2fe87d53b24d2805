// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// CopySpec describes the contents of a Copy: objects of namespaced kinds in the link's namespace.
type CopySpec struct {
	// Kinds holds prototypes of the kinds.
	Kinds []client.Object
	// Probe is a list of one of the kinds. It is requested before any watch starts, because a watch
	// that the API server forbids would be retried every few seconds.
	Probe client.ObjectList
	// Selector selects the objects by their labels.
	Selector labels.Selector
	// Changed is called after each change, and when the copy is complete; it must not block.
	Changed func()
}

// Copy is a cache of objects at a link's provider.
type Copy struct {
	client.Reader
	synced atomic.Bool
}

// Synced reports whether the copy has been complete once.
func (c *Copy) Synced() bool { return c.synced.Load() }

// Copy returns the copy with a name. The first call makes it from spec; it ends with the link.
func (l *Link) Copy(name string, spec CopySpec) (*Copy, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.copies[name]; c != nil {
		return c, nil
	}
	objects, err := l.newCache(spec)
	if err != nil {
		return nil, fmt.Errorf("make copy of namespace %s at %s: %w", l.Namespace, l.ID, err)
	}
	c := &Copy{Reader: objects}
	l.copies[name] = c
	l.start(func() { l.fill(c, objects, spec) })
	return c, nil
}

func (l *Link) newCache(spec CopySpec) (cache.Cache, error) {
	objects, err := l.NewCache(cache.Options{
		DefaultNamespaces: map[string]cache.Config{l.Namespace: {}}, DefaultLabelSelector: spec.Selector,
	})
	if err != nil {
		return nil, err
	}
	on := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { spec.Changed() },
		UpdateFunc: func(_, _ any) { spec.Changed() },
		DeleteFunc: func(any) { spec.Changed() },
	}
	for _, kind := range spec.Kinds {
		informer, err := objects.GetInformer(l.ctx, kind, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(on)
		}
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	return objects, nil
}

// refusedPeriod is the interval of requests to a provider that forbids this cluster to list. Such a
// provider has another version, whose role for this cluster changes with an upgrade.
const refusedPeriod = 10 * time.Minute

// fill keeps the copy up to date until the link ends.
func (l *Link) fill(c *Copy, objects cache.Cache, spec CopySpec) {
	for apierrors.IsForbidden(l.List(l.ctx, spec.Probe, client.InNamespace(l.Namespace), client.Limit(1))) {
		select {
		case <-time.After(refusedPeriod):
		case <-l.ctx.Done():
			return
		}
	}
	synced := make(chan struct{})
	go func() {
		defer close(synced)
		if objects.WaitForCacheSync(l.ctx) {
			c.synced.Store(true)
			spec.Changed()
		}
	}()
	if err := objects.Start(l.ctx); err != nil {
		log.FromContext(l.ctx).Error(err, "watch a peer")
	}
	<-synced
}
