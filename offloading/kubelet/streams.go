// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// streams is the way to the provider's API server for connections that are upgraded: HTTP/1.1
// only, because HTTP/2 cannot be upgraded. It is made anew when credentials change; running
// connections go on.
type streams struct {
	mu     sync.Mutex
	from   *rest.Config
	server *url.URL
	rt     http.RoundTripper
}

// transport gives server and transport for the credentials of the moment.
func (s *streams) transport(c *rest.Config) (*url.URL, http.RoundTripper, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from != nil && same(s.from, c) {
		return s.server, s.rt, nil
	}
	server, _, err := rest.DefaultServerUrlFor(c)
	if err != nil {
		return nil, nil, fmt.Errorf("find the provider's API server: %w", err)
	}
	if server.Path == "" {
		server.Path = "/" // else paths joined to it are relative
	}
	h1 := rest.CopyConfig(c)
	h1.NextProtos = []string{"http/1.1"}
	rt, err := rest.TransportFor(h1)
	if err != nil {
		return nil, nil, fmt.Errorf("make transport to the provider: %w", err)
	}
	if s.rt != nil {
		utilnet.CloseIdleConnectionsFor(s.rt)
	}
	s.from, s.server, s.rt = c, server, rt
	return server, rt, nil
}

func same(a, b *rest.Config) bool {
	return a.Host == b.Host && a.BearerToken == b.BearerToken && a.Username == b.Username && a.Password == b.Password &&
		slices.Equal(a.CertData, b.CertData) && slices.Equal(a.KeyData, b.KeyData) && slices.Equal(a.CAData, b.CAData) &&
		a.Insecure == b.Insecure && a.ServerName == b.ServerName && proxyOf(a) == proxyOf(b)
}

// proxyOf is the proxy a configuration leads through, empty when there is none.
func proxyOf(c *rest.Config) string {
	if c.Proxy == nil {
		return ""
	}
	proxy, err := c.Proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: c.Host}})
	if err != nil || proxy == nil {
		return ""
	}
	return proxy.String()
}
