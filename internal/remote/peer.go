// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package remote reaches the API servers of peers with the kubeconfigs kept in Secrets.
//
// A Secret may change at any time: certificates are renewed, a peer moves to another address.
// Clients made from Peer.Config go on working: the next request uses the new credentials,
// running watches end in their own time. Data flows from the Secret (Follow, or Update by
// whoever watches Secrets already) into Peer. The package knows nothing of what is said to the
// peer. Whether a peer lives is heard in what comes over open connections (Peer.Heard). Every response is bounded,
// because a peer may send one without end (bounds).
//
// Start reading at Peer.
package remote

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// Peer is the API server of another cluster. It is safe for use by many goroutines.
type Peer struct {
	current atomic.Pointer[access]
	ear     *ear // nil: nobody listens
	bounded bounded
}

// access is one state of the Secret.
type access struct {
	kubeconfig []byte
	config     *rest.Config
	server     *url.URL
	transport  http.RoundTripper
}

// New makes one of many peers of this process from a kubeconfig. Errors are permanent until the kubeconfig changes.
func New(kubeconfig []byte) (*Peer, error) {
	return made(&Peer{bounded: bounded{bounds: few}}, kubeconfig)
}

// Listen is New for who asks Heard. Such a peer has connections of its own; others to the same server as the
// same user share theirs.
func Listen(kubeconfig []byte) (*Peer, error) {
	return made(&Peer{ear: &ear{more: make(chan struct{}, 1)}, bounded: bounded{bounds: ordinary}}, kubeconfig)
}

func made(p *Peer, kubeconfig []byte) (*Peer, error) {
	if _, err := p.Update(kubeconfig); err != nil {
		return nil, err
	}
	return p, nil
}

// Update takes over a changed kubeconfig and says whether it differs from the one before.
// After an error the peer goes on with what it had.
func (p *Peer) Update(kubeconfig []byte) (changed bool, err error) {
	before := p.current.Load()
	if before != nil && bytes.Equal(before.kubeconfig, kubeconfig) {
		return false, nil
	}
	next, err := newAccess(kubeconfig, p.ear)
	if err != nil {
		return false, err
	}
	p.current.Store(next)
	if before != nil {
		utilnet.CloseIdleConnectionsFor(before.transport)
	}
	return true, nil
}

func newAccess(kubeconfig []byte, e *ear) (*access, error) {
	cfg, err := parse(kubeconfig)
	if err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: server: %w", err)
	}
	transport, err := transportFor(cfg, e)
	if err != nil {
		return nil, fmt.Errorf("make transport to %s: %w", server.Host, err)
	}
	return &access{kubeconfig: bytes.Clone(kubeconfig), config: cfg, server: server, transport: transport}, nil
}

// transportFor is client-go's transport, and one like it when somebody listens.
func transportFor(cfg *rest.Config, e *ear) (http.RoundTripper, error) {
	if e == nil {
		return rest.TransportFor(cfg)
	}
	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	return rest.HTTPWrappersForConfig(cfg, utilnet.SetTransportDefaults(&http.Transport{
		Proxy: cfg.Proxy, TLSClientConfig: tls, DialContext: e.dial,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter},
	}))
}

// Config makes clients whose requests always use the newest credentials and address. It holds
// no credentials itself: connections that are upgraded (exec, port-forward) need Credentials.
// Warnings of the peer are dropped: they would fill the log of this process.
func (p *Peer) Config() *rest.Config {
	return &rest.Config{Host: p.current.Load().server.String(), Transport: p, QPS: -1, WarningHandlerWithContext: rest.NoWarnings{}}
}

// Credentials are the address and credentials of this moment. Responses to clients made from them are not
// bounded: they are for streams, which must be copied and not kept.
func (p *Peer) Credentials() *rest.Config { return rest.CopyConfig(p.current.Load().config) }

// RoundTrip sends a request to where the peer is now, as who we are now. Its response is bounded.
func (p *Peer) RoundTrip(req *http.Request) (*http.Response, error) {
	now := p.current.Load()
	if req.URL.Host != now.server.Host || req.URL.Scheme != now.server.Scheme {
		req = req.Clone(req.Context())
		req.URL.Scheme, req.URL.Host, req.Host = now.server.Scheme, now.server.Host, ""
	}
	return p.bounded.roundTrip(now.transport, now.server.Path, req)
}

// fixedProxy leads every request through one proxy.
func fixedProxy(proxy *url.URL) func(*http.Request) (*url.URL, error) {
	return func(*http.Request) (*url.URL, error) { return proxy, nil }
}
