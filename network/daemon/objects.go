// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package daemon

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// Config returns the configuration for the API server: from KUBECONFIG, else from the pod's service
// account.
func Config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("load kubeconfig: %w", err)
	}
	return cfg, nil
}

// API holds one client for each API group the roles need. A client for all kinds of Kubernetes
// would be most of the process: see docs/decisions/0007.
type API struct {
	Networking, IPAM, Coordination rest.Interface
}

// Connect returns the clients. It does not wait for the API server.
func Connect(cfg *rest.Config) (API, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // the API server's own priority and fairness is the limit
	s, err := kinds()
	if err != nil {
		return API{}, fmt.Errorf("register kinds: %w", err)
	}
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(s).WithoutConversion()
	shared, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return API{}, fmt.Errorf("make HTTP client: %w", err)
	}
	var out API
	for gv, client := range map[schema.GroupVersion]*rest.Interface{
		netv1beta1.GroupVersion: &out.Networking, ipamv1alpha1.GroupVersion: &out.IPAM,
		coordinationv1.SchemeGroupVersion: &out.Coordination,
	} {
		if *client, err = clientFor(cfg, gv, shared); err != nil {
			return API{}, fmt.Errorf("make client for %s: %w", gv, err)
		}
	}
	return out, nil
}

// kinds returns a scheme with the kinds that the roles read and write.
func kinds() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	s.AddKnownTypes(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{})
	metav1.AddToGroupVersion(s, coordinationv1.SchemeGroupVersion)
	metav1.AddToGroupVersion(s, metav1.Unversioned) // the Status of an error
	add := runtime.NewSchemeBuilder(netv1beta1.AddToScheme, ipamv1alpha1.AddToScheme)
	return s, add.AddToScheme(s)
}

func clientFor(cfg *rest.Config, gv schema.GroupVersion, shared *http.Client) (rest.Interface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.GroupVersion, cfg.APIPath = &gv, "/apis"
	return rest.RESTClientForConfigAndClient(cfg, shared)
}

// Source is a kind of objects that a daemon watches and caches.
type Source interface {
	// run keeps the cache current until the context ends, and calls changed after each change.
	run(ctx context.Context, changed func())
	// complete reports whether all objects were listed once.
	complete() bool
}

// Objects is the cache of the objects of one kind. Callers must not modify what they get, neither
// objects nor lists.
type Objects[T any] struct {
	list     cache.ListerWatcher
	resource string
	// all holds the objects, ordered by namespace and name. Each change makes a new list, so that readers
	// need no copy: there may be thousands of objects.
	all    atomic.Pointer[[]*T]
	listed atomic.Bool
	// changed is called after each change; run sets it.
	changed func()
}

// Selection limits the objects that are read; the zero value = all of the cluster.
type Selection struct {
	Namespace string
	// Labels is a selector as text.
	Labels string
}

// Watch returns a cache of the objects of a resource. A daemon that has it as a source keeps it
// current, or Keep does.
func Watch[T any](client rest.Interface, resource string, selection Selection) *Objects[T] {
	return &Objects[T]{
		list: cache.NewFilteredListWatchFromClient(client, resource, selection.Namespace, func(o *metav1.ListOptions) {
			o.LabelSelector = selection.Labels
		}),
		resource: resource,
	}
}

// List returns the objects, ordered by namespace and name.
func (o *Objects[T]) List() []*T {
	if all := o.all.Load(); all != nil {
		return *all
	}
	return nil
}

// Get returns an object; nil = there is none.
func (o *Objects[T]) Get(namespace, name string) *T {
	all := o.List()
	if i, found := find(all, cache.ObjectName{Namespace: namespace, Name: name}); found {
		return all[i]
	}
	return nil
}

// find returns where in a list an object is, or would be.
func find[T any](list []*T, name cache.ObjectName) (at int, found bool) {
	return slices.BinarySearchFunc(list, name, func(x *T, n cache.ObjectName) int { return compare(nameOf(x), n) })
}

// nameOf returns the name of an API object.
func nameOf(obj any) cache.ObjectName {
	m := obj.(metav1.Object)
	return cache.ObjectName{Namespace: m.GetNamespace(), Name: m.GetName()}
}

func compare(a, b cache.ObjectName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// Keep keeps a cache that is no source of a daemon current until the context ends. It calls changed
// after each change.
func (o *Objects[T]) Keep(ctx context.Context, changed func()) { o.run(ctx, changed) }

// run implements Source. The reflector lists and watches. While the API server is unreachable it
// retries without limit, with growing pauses.
func (o *Objects[T]) run(ctx context.Context, changed func()) {
	o.changed = changed
	cache.NewReflectorWithOptions(o.list, new(T), o, cache.ReflectorOptions{Name: o.resource}).RunWithContext(ctx)
}

func (o *Objects[T]) complete() bool { return o.listed.Load() }

// Add implements cache.ReflectorStore.
func (o *Objects[T]) Add(obj any) error { return o.Update(obj) }

// Update implements cache.ReflectorStore.
func (o *Objects[T]) Update(obj any) error { return o.replace(obj, withoutManagedFields[T](obj)) }

// Delete implements cache.ReflectorStore.
func (o *Objects[T]) Delete(obj any) error { return o.replace(obj) }

// replace removes the object with the name of obj, if it is cached, and inserts the objects of by at its place.
func (o *Objects[T]) replace(obj any, by ...*T) error {
	all := o.List()
	from, found := find(all, nameOf(obj))
	to := from
	if found {
		to++
	}
	return o.set(slices.Concat(all[:from], by, all[to:]))
}

// Replace implements cache.ReflectorStore: it takes the whole list.
func (o *Objects[T]) Replace(list []any, _ string) error {
	all := make([]*T, len(list))
	for i, obj := range list {
		all[i] = withoutManagedFields[T](obj)
	}
	slices.SortFunc(all, func(a, b *T) int { return compare(nameOf(a), nameOf(b)) })
	o.listed.Store(true)
	return o.set(all)
}

// withoutManagedFields removes the managed fields of an object, which are most of its bytes, and returns it.
func withoutManagedFields[T any](obj any) *T {
	obj.(metav1.Object).SetManagedFields(nil)
	return obj.(*T)
}

// set replaces the list of all objects and calls changed.
func (o *Objects[T]) set(all []*T) error {
	o.all.Store(&all)
	o.changed()
	return nil
}

// Resync implements cache.ReflectorStore. It does nothing, because a daemon reconciles everything
// at an interval.
func (o *Objects[T]) Resync() error { return nil }
