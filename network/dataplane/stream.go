// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"cmp"
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
	// A dead path is detected in less than 10 s. Unacknowledged data closes a connection after
	// userTimeout. An idle one is probed, and unanswered probes close it after the same time. If
	// data is sent meanwhile, the time starts again: 4 + 4 s at most, and the interval of a probe.
	userTimeout = 4 * time.Second
	probeAfter  = 2 * time.Second
	probeEvery  = 1 * time.Second
	// maxQueue is the size of the queue in bytes: 4 ms at 1 Gbit/s. Packets that exceed it are
	// dropped, as by the queue of a network card. Connections inside the tunnel adapt their rate to
	// losses; a longer queue would delay their packets by seconds.
	maxQueue = 512 << 10
	// notSentLow is how many unsent bytes the kernel accepts, for the same reason: its own buffer
	// grows to megabytes.
	notSentLow = 128 << 10
)

// tcpEndpoint is an address with the methods of WireGuard's conn.Endpoint.
type tcpEndpoint netip.AddrPort

func (tcpEndpoint) ClearSrc()             {}
func (tcpEndpoint) SrcToString() string   { return "" }
func (tcpEndpoint) SrcIP() netip.Addr     { return netip.Addr{} }
func (p tcpEndpoint) DstToString() string { return netip.AddrPort(p).String() }
func (p tcpEndpoint) DstIP() netip.Addr   { return netip.AddrPort(p).Addr() }
func (p tcpEndpoint) DstToBytes() []byte {
	b, _ := netip.AddrPort(p).MarshalBinary() // has no error
	return b
}

// stream is one connection. On a server it is also the endpoint of the peer that uses it.
type stream struct {
	tcpEndpoint
	conn net.Conn
	// source is the endpoint that WireGuard is given for packets received on the connection: the
	// stream itself on a server.
	source conn.Endpoint
	// authenticated is when WireGuard last answered the other side, in Unix nanoseconds; 0 = it has
	// not, so the other side may be anybody.
	authenticated atomic.Int64
	// unused closes a dialled connection when nothing is sent for unusedAfter.
	unused *time.Timer
	// lastReceived is when data was last received, or else the connection was established, in Unix
	// nanoseconds.
	lastReceived atomic.Int64

	// wake has a message while frames wait; done is closed with the connection.
	wake, done chan struct{}
	mu         sync.Mutex
	// waiting holds frames to be written.
	waiting []byte
	closed  bool
}

// newStream returns the stream of a connection. If source is nil, it is the stream itself.
func newStream(c net.Conn, source conn.Endpoint) *stream {
	s := &stream{conn: c, source: source, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		p := a.AddrPort()
		s.tcpEndpoint = tcpEndpoint(netip.AddrPortFrom(p.Addr().Unmap(), p.Port()))
	}
	if source == nil {
		s.source = s
	}
	s.lastReceived.Store(time.Now().UnixNano())
	return s
}

// tune sets the options of a connection. Go disables Nagle's algorithm by default.
func tune(c net.Conn) error {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	probes := net.KeepAliveConfig{Enable: true, Idle: probeAfter, Interval: probeEvery, Count: 4}
	if err := t.SetKeepAliveConfig(probes); err != nil {
		return err
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		set := func(option, value int) error {
			return unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, option, value)
		}
		failed = cmp.Or(set(unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds())),
			set(unix.TCP_NOTSENT_LOWAT, notSentLow))
	})
	return cmp.Or(err, failed)
}

// send queues packets without waiting, and drops those that the queue has no room for.
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

// write writes all waiting frames at once, until the connection ends.
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

// close closes the connection, which ends its reader and writer.
func (s *stream) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.done)
		s.conn.Close()
	}
}
