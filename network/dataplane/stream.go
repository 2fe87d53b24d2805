// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
)

// Times and sizes of a connection.
const (
	// A dead path is noticed in less than 10 s. Unanswered data ends a connection after
	// userTimeout. A silent one is probed, and unanswered probes end it after as long, unless there
	// is data by then, for which the time begins anew: 4 + 4 s at most, and a probe's interval.
	userTimeout = 4 * time.Second
	probeAfter  = 2 * time.Second
	probeEvery  = 1 * time.Second
	// maxQueue is what may wait to be written, in bytes: the packets of 4 ms at 1 Gbit/s. What
	// exceeds it is dropped, as a full queue of a network card does: connections inside the tunnel
	// find their pace by that, while one that waits would let them fill seconds of memory.
	maxQueue = 512 << 10
	// notSentLow is how many bytes the kernel takes beyond those on their way, for the same reason:
	// its own buffer grows to megabytes.
	notSentLow = 128 << 10
)

// place is an address as WireGuard wants it.
type place netip.AddrPort

func (place) ClearSrc()             {}
func (place) SrcToString() string   { return "" }
func (place) SrcIP() netip.Addr     { return netip.Addr{} }
func (p place) DstToString() string { return netip.AddrPort(p).String() }
func (p place) DstIP() netip.Addr   { return netip.AddrPort(p).Addr() }
func (p place) DstToBytes() []byte {
	b, _ := netip.AddrPort(p).MarshalBinary() // has no error
	return b
}

// stream is one connection. On a server it is the endpoint of the peer that speaks through it.
type stream struct {
	place
	conn net.Conn
	// source is the endpoint WireGuard knows the other side by: the stream itself on a server.
	source conn.Endpoint
	// proven is when WireGuard last answered the other side, in Unix nanoseconds; 0 = it did not
	// yet, so this may be a stranger.
	proven atomic.Int64
	// lastReceived is when data was last received or the connection was made, in Unix nanoseconds.
	lastReceived atomic.Int64

	// wake has a message when something waits; done is closed when the connection is.
	wake, done chan struct{}
	mu         sync.Mutex
	// waiting are frames to be written.
	waiting []byte
	closed  bool
}

// newStream makes a connection ready. Its source is the stream itself when none is given.
func newStream(c net.Conn, source conn.Endpoint) *stream {
	s := &stream{conn: c, source: source, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		p := a.AddrPort()
		s.place = place(netip.AddrPortFrom(p.Addr().Unmap(), p.Port()))
	}
	if source == nil {
		s.source = s
	}
	s.lastReceived.Store(time.Now().UnixNano())
	return s
}

// tune sets what the connection needs; Go switches Nagle's algorithm off by itself.
func tune(c net.Conn) error {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	if err := t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: probeAfter, Interval: probeEvery, Count: 4}); err != nil {
		return err
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds())); failed == nil {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, notSentLow)
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// send queues packets and never waits; those that find no room are dropped.
func (s *stream) send(packets [][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errNotConnected
	}
	for _, p := range packets {
		if len(s.waiting)+frameHeader+len(p) <= maxQueue {
			s.waiting = appendFrame(s.waiting, p)
		}
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}

// write writes what waits, all of it at once, until the connection ends.
func (s *stream) write() {
	defer s.close()
	var frames []byte
	for {
		select {
		case <-s.done:
			return
		case <-s.wake:
		}
		s.mu.Lock()
		frames, s.waiting = s.waiting, frames[:0]
		s.mu.Unlock()
		if _, err := s.conn.Write(frames); err != nil {
			return
		}
	}
}

// close ends the connection; reader and writer end by it.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.done)
		s.conn.Close()
	}
}
