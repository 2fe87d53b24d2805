// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/internal/packed"
	"github.com/liqo-go/liqo/reflection/translate"
)

// Cluster is one side of the reflection.
type Cluster struct {
	client.Client
	config *rest.Config
	http   *http.Client
	scheme *runtime.Scheme
	mapper meta.RESTMapper
}

// NewCluster reaches a cluster. Nothing is asked of it: the kinds we speak of are known, so no
// discovery is needed and a cluster that is away at the moment is no error.
func NewCluster(config *rest.Config, scheme *runtime.Scheme, custom ...CustomResource) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // no limit at the client; the API server has priority and fairness
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client of %s: %w", config.Host, err)
	}
	c := &Cluster{config: config, http: httpClient, scheme: scheme, mapper: staticMapper(scheme, custom)}
	c.Client, err = client.New(config, client.Options{HTTPClient: httpClient, Scheme: scheme, Mapper: c.mapper})
	if err != nil {
		return nil, fmt.Errorf("make client of %s: %w", config.Host, err)
	}
	return c, nil
}

// ready asks the API server whether it is ready; nil = it is.
func (c *Cluster) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	asking, err := discovery.NewDiscoveryClientForConfigAndClient(c.config, c.http)
	if err != nil {
		return fmt.Errorf("make client of %s: %w", c.config.Host, err)
	}
	return asking.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// staticMapper maps every kind of the scheme to the resource of the usual name, and custom ones to
// that of the given name. All kinds that are read follow the rule. They are namespaced, but for
// volumes, namespaces and nodes.
func staticMapper(scheme *runtime.Scheme, custom []CustomResource) meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for gvk := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		switch gvk.Kind {
		case "PersistentVolume", "Namespace", "Node":
			scope = meta.RESTScopeRoot
		}
		mapper.Add(gvk, scope)
	}
	for _, resource := range custom {
		resource.add(mapper)
	}
	return mapper
}

// contents say what a cache holds, by kind.
type contents map[client.Object]content

// content is what a cache holds of one kind: the objects that marks and fields select, and of them what
// trim leaves; nil is everything.
type content struct {
	marks  labels.Selector
	fields fields.Selector
	trim   func(client.Object)
}

// cache makes a cache of one namespace. Its objects are shared: whoever reads must not change them.
func (c *Cluster) cache(namespace string, kinds contents) (cache.Cache, error) {
	byObject := map[client.Object]cache.ByObject{}
	for kind, content := range kinds {
		byObject[kind] = cache.ByObject{Label: content.marks, Field: content.fields, Transform: trimming(content.trim)}
	}
	out, err := cache.New(c.config, cache.Options{
		HTTPClient:                   c.http,
		Scheme:                       c.scheme,
		Mapper:                       c.mapper,
		DefaultNamespaces:            map[string]cache.Config{namespace: {}},
		ByObject:                     byObject,
		DefaultTransform:             trimming(nil),
		DefaultUnsafeDisableDeepCopy: new(true),
		NewInformer:                  packed.Informer,
	})
	if err != nil {
		return nil, fmt.Errorf("make cache of namespace %s at %s: %w", namespace, c.config.Host, err)
	}
	return out, nil
}

// trimming leaves of the managed fields those that say which labels and annotations of a remote object came
// from home, and does what trim does, nil for nothing.
func trimming(trim func(client.Object)) toolscache.TransformFunc {
	return func(obj any) (any, error) {
		o, ok := obj.(client.Object)
		if !ok {
			return obj, nil
		}
		o.SetManagedFields(translate.OwnKeys(o.GetManagedFields()))
		if trim != nil {
			trim(o)
		}
		return o, nil
	}
}
