// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package remote reaches the API servers of peers with the kubeconfigs kept in Secrets. It makes
// all their transports, clients and caches, checks their health, and reports changes to those who
// subscribe.
//
// A Secret may change at any time: certificates are renewed, a peer moves to another address.
// Clients made from Peer.Config go on working: the next request uses the new credentials, and
// running watches end in their own time. Data flows from the Secrets into links: a Fleet reads
// those of the controller from its cache, Follow watches the only one of a virtual kubelet. The
// package does not know what requests are about. Every response is bounded, because a peer may send
// one without end (bounds).
//
//	Secret                        Link (Peer)
//	usable kubeconfig        ──▶  made; subscribers are called
//	other credentials        ──▶  the same; the next request uses them, and its health is checked at once
//	unusable kubeconfig      ──▶  the same, with the former credentials
//	other peer or namespace  ──▶  replaced; subscribers are called
//	deleted, or not trusted  ──▶  closed with its copies and connections; subscribers are called
//
// Start reading at Link.
package remote

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// Peer is the API server of another cluster. It is safe for use by many goroutines.
type Peer struct {
	ctx     context.Context // ends connections
	current atomic.Pointer[access]
	updated chan struct{} // holds a value if the kubeconfig has changed since the last health check
	bounded bounded
}

// access is one state of the Secret.
type access struct {
	kubeconfig         []byte
	server             *url.URL
	transport, streams http.RoundTripper
	contact            *contact
}

// New returns one of many peers of this process, from a kubeconfig. Its connections end with ctx.
// Errors are permanent until the kubeconfig changes.
func New(ctx context.Context, kubeconfig []byte) (*Peer, error) { return newPeer(ctx, kubeconfig, few) }

func newPeer(ctx context.Context, kubeconfig []byte, b bounds) (*Peer, error) {
	p := &Peer{ctx: ctx, updated: make(chan struct{}, 1), bounded: bounded{bounds: b}}
	if _, err := p.Update(kubeconfig); err != nil {
		return nil, err
	}
	return p, nil
}

// Update sets a changed kubeconfig, and reports whether it differs from the former one. After an
// error the peer keeps the former one.
func (p *Peer) Update(kubeconfig []byte) (changed bool, err error) {
	before := p.current.Load()
	if before != nil && bytes.Equal(before.kubeconfig, kubeconfig) {
		return false, nil
	}
	next, err := newAccess(p.ctx, kubeconfig)
	if err != nil {
		return false, err
	}
	p.current.Store(next)
	if before != nil {
		utilnet.CloseIdleConnectionsFor(before.transport)
		utilnet.CloseIdleConnectionsFor(before.streams)
		select {
		case p.updated <- struct{}{}:
		default:
		}
	}
	return true, nil
}

func newAccess(ctx context.Context, kubeconfig []byte) (*access, error) {
	cfg, err := parse(kubeconfig)
	if err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: server: %w", err)
	}
	c := &contact{ctx: ctx, more: make(chan struct{}, 1)}
	a := &access{kubeconfig: bytes.Clone(kubeconfig), server: server, contact: c}
	if a.transport, err = a.newTransport(cfg); err != nil {
		return nil, fmt.Errorf("make transport to %s: %w", server.Host, err)
	}
	http1 := rest.CopyConfig(cfg)
	http1.NextProtos = []string{"http/1.1"}
	if a.streams, err = a.newTransport(http1); err != nil {
		return nil, fmt.Errorf("make transport to %s: %w", server.Host, err)
	}
	return a, nil
}

// newTransport returns a transport like that of client-go, which records when something is
// received.
func (a *access) newTransport(cfg *rest.Config) (http.RoundTripper, error) {
	tls, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	return rest.HTTPWrappersForConfig(cfg, utilnet.SetTransportDefaults(&http.Transport{
		Proxy: cfg.Proxy, TLSClientConfig: tls, DialContext: a.contact.dial,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter},
	}))
}

// Config returns the configuration of clients whose requests always use the newest credentials and
// address. It holds no credentials itself: upgraded connections (exec, attach, port-forward) need
// Streams. Warnings of the peer are dropped, because they would fill the log of this process.
func (p *Peer) Config() *rest.Config {
	return &rest.Config{
		Host: p.current.Load().server.String(), Transport: p, QPS: -1, WarningHandlerWithContext: rest.NoWarnings{},
	}
}

// Streams returns the current address, and a transport with the current credentials for upgraded
// connections. It uses HTTP/1.1, because HTTP/2 connections cannot be upgraded. Open connections
// continue when credentials change. Responses are not bounded: callers copy them and do not keep
// them.
func (p *Peer) Streams() (*url.URL, http.RoundTripper) {
	now := p.current.Load()
	return now.server.JoinPath("/"), now.streams
}

// RoundTrip sends a request to the current address with the current credentials. Its response is
// bounded.
func (p *Peer) RoundTrip(req *http.Request) (*http.Response, error) {
	now := p.current.Load()
	if req.URL.Host != now.server.Host || req.URL.Scheme != now.server.Scheme {
		req = req.Clone(req.Context())
		req.URL.Scheme, req.URL.Host, req.Host = now.server.Scheme, now.server.Host, ""
	}
	return p.bounded.roundTrip(now.transport, now.server.Path, req)
}
