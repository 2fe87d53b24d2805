// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// pingAfter is how long a connection may be silent until HTTP/2 sends a ping. The reply is a
	// frame, no response: an API server neither counts nor logs it, and replies while it runs at
	// all.
	pingAfter = 5 * time.Second
	// silence is how long the open connection of a healthy peer is silent at most. It leaves a
	// second for the reply, enough between continents on a busy machine.
	silence = pingAfter + time.Second
)

// Health is the outcome of the last request for /livez.
type Health struct {
	Code   int    // HTTP status code; 0 = no response
	Status string // its text, with the code
	Err    error  // why there was no response
}

// Checks configures the health checks of a peer.
type Checks struct {
	// Interval is the time between two checks, Timeout that of one request.
	Interval, Timeout time.Duration
	// MaxUnasked is how many intervals may pass without a request to a healthy peer. Until then a
	// check passes if anything is received. Another host on the path may have sent that instead of
	// the API server.
	MaxUnasked int
}

// Monitor checks the health of the peer at each interval, and at once when its credentials change,
// until ctx ends. After each check it calls report with the time at which the check began. A peer
// is healthy if report returns true. There may be one Monitor of a peer.
func (p *Peer) Monitor(ctx context.Context, c Checks, report func(began time.Time, h Health) (healthy bool)) {
	var (
		last    Health
		asked   time.Time
		healthy bool
	)
	ticker := time.NewTicker(c.Interval)
	defer ticker.Stop()
	for {
		began := time.Now()
		unasked := healthy && began.Sub(asked) < time.Duration(c.MaxUnasked)*c.Interval
		if !unasked || !p.current.Load().contact.since(ctx, began) {
			asked, last = began, p.livez(ctx, c.Timeout)
		}
		if ctx.Err() != nil {
			return
		}
		healthy = report(began, last)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-p.updated:
			healthy = false
		}
	}
}

// livez requests the API server's /livez.
func (p *Peer) livez(ctx context.Context, timeout time.Duration) Health {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	address := strings.TrimSuffix(p.Config().Host, "/") + "/livez"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return Health{Err: err}
	}
	resp, err := p.RoundTrip(req)
	if err != nil {
		return Health{Err: err}
	}
	defer func() { _ = resp.Body.Close() }() // nothing is left to read
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
	return Health{Code: resp.StatusCode, Status: resp.Status}
}

// contact records when anything is received over the connections of one access.
type contact struct {
	ctx  context.Context // ends connections
	last atomic.Int64    // Unix time in ns
	more chan struct{}
}

// since reports whether anything has been received since t, and waits for it until silence has
// passed since t. It sends nothing: without an open connection, or over HTTP/1, a healthy peer may
// send nothing. Only one goroutine may wait at a time.
func (c *contact) since(ctx context.Context, t time.Time) bool {
	ctx, cancel := context.WithDeadline(ctx, t.Add(silence))
	defer cancel()
	for c.last.Load() < t.UnixNano() {
		select {
		case <-c.more:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// dial connects like client-go.
func (c *contact) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return connection{conn, c, context.AfterFunc(c.ctx, func() { _ = conn.Close() })}, nil
}

// connection records each arrival, and is closed with its peer.
type connection struct {
	net.Conn
	contact *contact
	forget  func() bool
}

func (c connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.contact.last.Store(time.Now().UnixNano())
		select {
		case c.contact.more <- struct{}{}:
		default: // an earlier arrival has not been read yet
		}
	}
	return n, err
}

func (c connection) Close() error {
	c.forget()
	return c.Conn.Close()
}
