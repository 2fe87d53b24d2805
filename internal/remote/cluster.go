// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cluster has the client of one API server, a peer's or that of this cluster, and makes caches of it.
type Cluster struct {
	client.Client
	RESTConfig *rest.Config
	HTTP       *http.Client // of the client and all caches
}

// NewCluster makes a cluster whose resources mapper knows, such as a StaticMapper. It sends no request: no discovery is
// needed, and an API server that is away at the moment is no error.
func NewCluster(config *rest.Config, scheme *runtime.Scheme, mapper meta.RESTMapper) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // no limit at the client; the API server has priority and fairness
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make client of %s: %w", config.Host, err)
	}
	c, err := client.New(config, client.Options{HTTPClient: httpClient, Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make client of %s: %w", config.Host, err)
	}
	return &Cluster{Client: c, RESTConfig: config, HTTP: httpClient}, nil
}

// NewCache makes a cache with the client's connections, scheme and mapper.
func (c *Cluster) NewCache(o cache.Options) (cache.Cache, error) {
	o.HTTPClient, o.Scheme, o.Mapper = c.HTTP, c.Scheme(), c.RESTMapper()
	out, err := cache.New(c.RESTConfig, o)
	if err != nil {
		return nil, fmt.Errorf("make cache of %s: %w", c.RESTConfig.Host, err)
	}
	return out, nil
}

// Ready asks the API server whether it is ready; nil = it is.
func (c *Cluster) Ready(ctx context.Context) error {
	asking, err := discovery.NewDiscoveryClientForConfigAndClient(c.RESTConfig, c.HTTP)
	if err != nil {
		return fmt.Errorf("make client of %s: %w", c.RESTConfig.Host, err)
	}
	return asking.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// StaticMapper maps every kind of the scheme to the resource of the usual name, which all kinds that are read have.
// They are namespaced, but for volumes, namespaces and nodes.
func StaticMapper(scheme *runtime.Scheme) *meta.DefaultRESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for gvk := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		switch gvk.Kind {
		case "PersistentVolume", "Namespace", "Node":
			scope = meta.RESTScopeRoot
		}
		mapper.Add(gvk, scope)
	}
	return mapper
}
