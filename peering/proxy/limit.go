// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"net"
	"net/netip"
	"sync"
)

const (
	// maxPerAddress is how many connections one address may have open. A virtual kubelet has three,
	// and one for each stream of exec and port-forward.
	maxPerAddress = 100
	// maxConnections is how many connections may be open. Each takes at most 70 KB, for the buffers
	// of both directions.
	maxConnections = 2000
)

// limit closes new connections above a maximum, in total or of one address, and goes on with
// others.
type limit struct {
	net.Listener
	all, one int

	mu   sync.Mutex
	open map[netip.Addr]int
	sum  int
}

func limited(l net.Listener, all, one int) *limit {
	return &limit{Listener: l, all: all, one: one, open: map[netip.Addr]int{}}
}

// Accept returns the next connection within the limits.
func (l *limit) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := accepted.(*net.TCPConn)
		if !ok {
			return accepted, nil
		}
		from := tcp.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		if l.take(from) {
			return &counted{TCPConn: tcp, release: sync.OnceFunc(func() { l.give(from) })}, nil
		}
		_ = tcp.Close() // nothing has been sent
	}
}

func (l *limit) take(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sum >= l.all || l.open[from] >= l.one {
		return false
	}
	l.sum++
	l.open[from]++
	return true
}

func (l *limit) give(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum--
	if l.open[from]--; l.open[from] == 0 {
		delete(l.open, from)
	}
}

// counted is a connection that counts towards the limits until it is closed.
type counted struct {
	*net.TCPConn
	release func()
}

// Close ends the connection and makes room for another.
func (c *counted) Close() error {
	defer c.release()
	return c.TCPConn.Close()
}
