// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

const (
	// pingAfter is how long a connection may be silent until HTTP/2 asks the other end whether it lives. The
	// answer is a frame, no request: an API server neither counts nor logs it, and answers while it runs at all.
	pingAfter = 5 * time.Second
	// Silence is how long a peer that lives is silent at most while a connection to it is open: the answer has a
	// second, as between continents on a busy machine.
	Silence = pingAfter + time.Second
)

// ear notes when anything comes from a peer.
type ear struct {
	last atomic.Int64 // Unix time in ns
	more chan struct{}
}

func (e *ear) hear() {
	e.last.Store(time.Now().UnixNano())
	select {
	case e.more <- struct{}{}:
	default: // nobody has looked at what came before
	}
}

// Heard says whether anything has come from the peer since a time, and waits for it until Silence has passed
// since then. It asks nothing: without an open connection, or over HTTP/1, nothing may come from a peer that
// lives. Only one goroutine at a time may wait, and only for a peer made by Listen or Follow.
func (p *Peer) Heard(ctx context.Context, since time.Time) bool {
	ctx, cancel := context.WithDeadline(ctx, since.Add(Silence))
	defer cancel()
	for p.ear.last.Load() < since.UnixNano() {
		select {
		case <-p.ear.more:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// dial connects as client-go does, and listens.
func (e *ear) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return listened{conn, e}, nil
}

// listened is a connection whose every arrival is noted.
type listened struct {
	net.Conn
	ear *ear
}

func (l listened) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if n > 0 {
		l.ear.hear()
	}
	return n, err
}
