// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// CopySpec says what a Copy holds: objects of namespaced kinds in the link's namespace.
type CopySpec struct {
	Scheme *runtime.Scheme
	// Kinds are prototypes. Whether the first one may be listed is asked before anything is watched.
	Kinds    []client.Object
	Selector labels.Selector
	// Changed is called after each change, and when the copy is complete; it must not block.
	Changed func()
}

// Copy is what a link's provider has, as it was heard last.
type Copy struct {
	client.Reader
	// Client reads and writes at the provider itself.
	Client client.Client
	synced atomic.Bool
	spec   CopySpec
	cache  cache.Cache
}

// Synced reports whether the copy has been complete once.
func (c *Copy) Synced() bool { return c.synced.Load() }

// Copy is the copy of a name, which spec makes if there is none yet. It ends with the link.
func (l *Link) Copy(name string, spec CopySpec) (*Copy, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.copies[name]; c != nil {
		return c, nil
	}
	c, err := l.newCopy(spec)
	if err != nil {
		return nil, fmt.Errorf("make copy of namespace %s at %s: %w", l.Namespace, l.ID, err)
	}
	l.copies[name] = c
	go c.run(log.IntoContext(l.ctx, log.Log.WithValues("peer", l.ID)), l.Namespace)
	return c, nil
}

func (l *Link) newCopy(spec CopySpec) (*Copy, error) {
	config := l.Config()
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil) // asks nothing of a peer that may be away
	for _, kind := range spec.Kinds {
		gvk, err := apiutil.GVKForObject(kind, spec.Scheme)
		if err != nil {
			return nil, err
		}
		mapper.Add(gvk, meta.RESTScopeNamespace)
		mapper.Add(gvk.GroupVersion().WithKind(gvk.Kind+"List"), meta.RESTScopeNamespace)
	}
	c := &Copy{spec: spec}
	c.Client, err = client.New(config, client.Options{HTTPClient: transport, Scheme: spec.Scheme, Mapper: mapper})
	if err != nil {
		return nil, err
	}
	c.cache, err = cache.New(config, cache.Options{
		HTTPClient: transport, Scheme: spec.Scheme, Mapper: mapper,
		DefaultNamespaces: map[string]cache.Config{l.Namespace: {}}, DefaultLabelSelector: spec.Selector,
	})
	if err != nil {
		return nil, err
	}
	c.Reader = c.cache
	on := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { spec.Changed() }, UpdateFunc: func(_, _ any) { spec.Changed() }, DeleteFunc: func(any) { spec.Changed() },
	}
	for _, kind := range spec.Kinds {
		informer, err := c.cache.GetInformer(l.ctx, kind, cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(on)
		}
		if err != nil {
			return nil, fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	return c, nil
}

// RefusedPeriod is how often a provider is asked again that does not let this cluster look at it, or write there: one
// of another version, whose role for us changes when it is upgraded.
const RefusedPeriod = 10 * time.Minute

// run fills the copy until ctx ends.
func (c *Copy) run(ctx context.Context, namespace string) {
	for !c.mayLook(ctx, namespace) {
		select {
		case <-time.After(RefusedPeriod):
		case <-ctx.Done():
			return
		}
	}
	go func() {
		if c.cache.WaitForCacheSync(ctx) {
			c.synced.Store(true)
			c.spec.Changed()
		}
	}()
	if err := c.cache.Start(ctx); err != nil {
		log.FromContext(ctx).Error(err, "watch a peer")
	}
}

// mayLook asks once before watching: a watch that is refused is tried again every few seconds. A
// provider that does not answer may allow it.
func (c *Copy) mayLook(ctx context.Context, namespace string) bool {
	gvk, err := apiutil.GVKForObject(c.spec.Kinds[0], c.spec.Scheme)
	if err != nil {
		return true
	}
	list, err := c.spec.Scheme.New(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err != nil {
		return true
	}
	return !apierrors.IsForbidden(c.Client.List(ctx, list.(client.ObjectList), client.InNamespace(namespace), client.Limit(1)))
}
