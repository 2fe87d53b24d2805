// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/internal/fields"
)

// Cluster holds the client of one API server, a peer's or the local one, and makes its caches.
type Cluster struct {
	client.Client
	RESTConfig *rest.Config
	HTTP       *http.Client // of the client and all caches
}

// NewCluster returns a cluster with the resources that mapper knows, such as a StaticMapper. It
// sends no request: it needs no discovery, and an unreachable API server is not an error.
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

// NewCache returns a cache with the client's connections, scheme and mapper.
func (c *Cluster) NewCache(o cache.Options) (cache.Cache, error) {
	o.HTTPClient, o.Scheme, o.Mapper = c.HTTP, c.Scheme(), c.RESTMapper()
	out, err := cache.New(c.RESTConfig, o)
	if err != nil {
		return nil, fmt.Errorf("make cache of %s: %w", c.RESTConfig.Host, err)
	}
	return out, nil
}

// Ready requests the API server's /readyz; nil = it is ready.
func (c *Cluster) Ready(ctx context.Context) error {
	asking, err := c.asking()
	if err != nil {
		return err
	}
	return asking.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// Fields reads the OpenAPI document of a group and version.
func (c *Cluster) Fields(ctx context.Context, gv schema.GroupVersion) (fields.Document, error) {
	asking, err := c.asking()
	if err != nil {
		return fields.Document{}, err
	}
	return fields.Read(ctx, asking.RESTClient(), gv)
}

// Version reads the version of the API server.
func (c *Cluster) Version(ctx context.Context) (string, error) {
	asking, err := c.asking()
	if err != nil {
		return "", err
	}
	version, err := asking.ServerVersionWithContext(ctx)
	if err != nil {
		return "", fmt.Errorf("read version of %s: %w", c.RESTConfig.Host, err)
	}
	return version.GitVersion, nil
}

// asking returns a client for requests that are about no object.
func (c *Cluster) asking() (*discovery.DiscoveryClient, error) {
	out, err := discovery.NewDiscoveryClientForConfigAndClient(c.RESTConfig, c.HTTP)
	if err != nil {
		return nil, fmt.Errorf("make client of %s: %w", c.RESTConfig.Host, err)
	}
	return out, nil
}

// StaticMapper maps every kind of the scheme to the resource of the usual name; all kinds in use
// follow the rule. They are namespaced, except volumes, namespaces, nodes and trust bundles.
func StaticMapper(scheme *runtime.Scheme) *meta.DefaultRESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for gvk := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		switch gvk.Kind {
		case "PersistentVolume", "Namespace", "Node", "ClusterTrustBundle":
			scope = meta.RESTScopeRoot
		}
		mapper.Add(gvk, scope)
	}
	return mapper
}
