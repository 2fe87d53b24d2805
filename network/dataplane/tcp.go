// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
)

// Times and bounds of the TCP transport.
const (
	dialTimeout            = 4 * time.Second
	redialFirst, redialMax = 100 * time.Millisecond, 5 * time.Second
	// lasting is how long a useful connection must last to be redialled without a wait.
	lasting = time.Second
	// unusedAfter is how long a dialled connection stays open without a packet to send. The
	// keepalive of a client is sent every 25 s.
	unusedAfter = time.Minute
	// staleAfter is how long a connection may receive nothing before a further request for its
	// endpoint redials it: the caller has waited for answers.
	staleAfter = time.Second
	// An accepted connection must send a frame within firstFrame, and WireGuard must answer it
	// within proof. The second attempt of a handshake is sent after 5 s.
	firstFrame, proof = 5 * time.Second, 15 * time.Second
	// maxStreams bounds the accepted connections. A tunnel has one peer; the others are its former
	// connections, or not the peer's. Each takes 2 × readSize of memory, so 8 MiB in all.
	maxStreams = 32
)

var errNotConnected = errors.New("there is no connection")

// tcpBind carries WireGuard's packets over TCP instead of UDP. With a port it is a server: it
// accepts connections, and each is an endpoint. WireGuard finds out which one is the peer's, because
// it changes an endpoint only after a packet that it could authenticate. Without a port it is a
// client: it dials the endpoints that packets are sent to, and redials them.
//
//	WireGuard ─▶ Send ─▶ queue ─▶ stream.write ═══TCP═══▶ read ─▶ receive ─▶ WireGuard
//
// A connection is authenticated once WireGuard answered it. Others are closed soon, make room for
// new ones, and are read only when no authenticated one has frames.
type tcpBind struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// connected is called after each dialled connection is established.
	connected func(to netip.AddrPort)
	// running counts all goroutines.
	running sync.WaitGroup

	mu sync.Mutex
	// session is nil while the bind is closed.
	session *session
	dialled map[netip.AddrPort]*clientEndpoint
}

// session holds the state between Open and Close.
type session struct {
	ctx      context.Context
	end      context.CancelFunc
	listener net.Listener // nil on a client
	// streams are the accepted connections; guarded by the bind.
	streams []*stream
	// authenticated carries frames of authenticated connections, others those of all others.
	authenticated, others chan received
}

// received holds whole frames of a connection.
type received struct {
	frames []byte
	from   conn.Endpoint
}

// clientEndpoint is an address that a client dials. It outlives its connections.
type clientEndpoint struct {
	tcpEndpoint
	// retryNow ends the wait for the next attempt to connect.
	retryNow chan struct{}
	// These fields are guarded by the bind: the session in which it is kept connected, its
	// connection, and when it was last used.
	session *session
	stream  *stream
	used    time.Time
}

func newTCPBind(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *tcpBind {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &tcpBind{dial: dial, connected: func(netip.AddrPort) {}, dialled: map[netip.AddrPort]*clientEndpoint{}}
}

// Open listens on a port; with 0 it only dials.
func (b *tcpBind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session != nil {
		return nil, 0, conn.ErrBindAlreadyOpen
	}
	s := &session{authenticated: make(chan received), others: make(chan received)}
	s.ctx, s.end = context.WithCancel(context.Background())
	if port != 0 {
		var config net.ListenConfig
		config.SetMultipathTCP(false) // it does not support TCP_USER_TIMEOUT
		var err error
		if s.listener, err = config.Listen(s.ctx, "tcp", ":"+strconv.Itoa(int(port))); err != nil {
			s.end()
			return nil, 0, err
		}
		b.running.Go(func() { b.accept(s) })
	}
	b.session = s
	return []conn.ReceiveFunc{s.receiver()}, port, nil
}

// Close ends all connections. It does not wait for goroutines, because WireGuard holds locks
// meanwhile that they may need; wait does.
func (b *tcpBind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session == nil {
		return nil
	}
	b.session.end()
	if b.session.listener != nil {
		b.session.listener.Close()
	}
	b.session = nil
	return nil
}

// hangUp closes the accepted connections.
func (b *tcpBind) hangUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session == nil {
		return
	}
	for _, x := range b.session.streams {
		x.close()
	}
}

// wait waits until all goroutines have ended after Close.
func (b *tcpBind) wait() { b.running.Wait() }

// SetMark does nothing: no mark is used.
func (b *tcpBind) SetMark(uint32) error { return nil }

// BatchSize returns how many packets are received at once.
func (b *tcpBind) BatchSize() int { return conn.IdealBatchSize }

// ParseEndpoint returns the endpoint for an address. A server has only those of accepted
// connections. A request for an endpoint that is connected means that answers are missing, so a
// connection that receives nothing is redialled.
func (b *tcpBind) ParseEndpoint(text string) (conn.Endpoint, error) {
	to, err := netip.ParseAddrPort(text)
	if err != nil {
		return nil, err
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.session; s != nil && s.listener != nil {
		if i := slices.IndexFunc(s.streams, func(x *stream) bool { return x.tcpEndpoint == tcpEndpoint(to) }); i >= 0 {
			return s.streams[i], nil
		}
		return tcpEndpoint(to), nil
	}
	l, ok := b.dialled[to]
	if !ok {
		l = &clientEndpoint{tcpEndpoint: tcpEndpoint(to), retryNow: make(chan struct{}, 1)}
		b.dialled[to] = l
	}
	if l.stream != nil && time.Since(time.Unix(0, l.stream.lastReceived.Load())) < staleAfter {
		return l, nil
	}
	if l.stream != nil {
		l.stream.close()
	}
	select {
	case l.retryNow <- struct{}{}:
	default:
	}
	return l, nil
}

// Send queues packets for an endpoint. Without a connection they are lost, as with UDP.
func (b *tcpBind) Send(packets [][]byte, to conn.Endpoint) error {
	var s *stream
	switch to := to.(type) {
	case *stream:
		s = to
		if len(packets) > 0 && isAuthenticated(packets[0]) {
			s.authenticate()
		}
	case *clientEndpoint:
		s = b.streamOf(to)
	}
	if s == nil {
		return errNotConnected
	}
	return s.send(packets)
}

// isAuthenticated reports whether WireGuard sends a packet of this type to authenticated peers only.
// It sends cookies to anybody.
func isAuthenticated(packet []byte) bool {
	return len(packet) > 0 && packet[0] != device.MessageCookieReplyType
}

// authenticate records that WireGuard answered the connection.
func (s *stream) authenticate() {
	if s.authenticated.Swap(time.Now().UnixNano()) == 0 {
		s.conn.SetReadDeadline(time.Time{})
	}
}

// streamOf returns the connection of an endpoint, or nil while there is none, and keeps the endpoint
// connected from now on.
func (b *tcpBind) streamOf(l *clientEndpoint) *stream {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.used = time.Now()
	if l.stream != nil {
		l.stream.unused.Reset(unusedAfter)
	}
	if s := b.session; s != nil && l.session != s {
		l.session = s
		b.dialled[netip.AddrPort(l.tcpEndpoint)] = l
		b.running.Go(func() { b.keep(l, s) })
	}
	return l.stream
}

// keep keeps an endpoint connected until the session ends or the endpoint is not used any more.
func (b *tcpBind) keep(l *clientEndpoint, s *session) {
	for wait := time.Duration(0); b.isUsed(l, s); {
		pause(s.ctx, wait, l.retryNow)
		began := time.Now()
		good := b.connect(l, s)
		wait = redialAfter(wait, good, time.Since(began))
	}
}

// redialAfter returns how long to wait before the next attempt, given the wait before the last one,
// whether its connection received anything, and how long that lasted. A connection that lasted is
// redialled immediately: during a handover a server closes it, and the next server accepts it.
func redialAfter(waited time.Duration, good bool, lasted time.Duration) time.Duration {
	switch {
	case good && lasted >= lasting:
		return 0
	case good:
		return redialFirst
	}
	return min(max(2*waited, redialFirst), redialMax)
}

// pause waits until the time has passed, the context ends, or retryNow has a message.
func pause(ctx context.Context, d time.Duration, retryNow <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-retryNow:
	}
}

// isUsed reports whether an endpoint is still used; otherwise it removes the endpoint, which streamOf
// adds again.
func (b *tcpBind) isUsed(l *clientEndpoint, s *session) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.ctx.Err() == nil && time.Since(l.used) < unusedAfter {
		return true
	}
	if l.session == s {
		l.session = nil
		delete(b.dialled, netip.AddrPort(l.tcpEndpoint))
	}
	return false
}

// connect dials an endpoint, serves the connection until it ends, and reports whether it received
// anything.
func (b *tcpBind) connect(l *clientEndpoint, s *session) bool {
	ctx, cancel := context.WithTimeout(s.ctx, dialTimeout)
	c, err := b.dial(ctx, "tcp", l.DstToString())
	cancel()
	if err != nil {
		return false
	}
	if err := tune(c); err != nil {
		c.Close()
		return false
	}
	x := newStream(c, l)
	x.authenticated.Store(x.lastReceived.Load()) // a dialled address is trusted
	x.unused = time.AfterFunc(unusedAfter, x.close)
	defer x.unused.Stop()
	if !b.install(l, s, x) {
		x.close()
		return false
	}
	made := x.lastReceived.Load()
	b.running.Go(x.write)
	b.connected(netip.AddrPort(l.tcpEndpoint))
	s.read(x)
	b.mu.Lock()
	if l.stream == x {
		l.stream = nil
	}
	b.mu.Unlock()
	return x.lastReceived.Load() != made
}

// install sets the connection of an endpoint. It returns false if the session ended meanwhile.
func (b *tcpBind) install(l *clientEndpoint, s *session, x *stream) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session != s {
		return false
	}
	l.stream = x
	return true
}

// accept accepts connections until the session ends.
func (b *tcpBind) accept(s *session) {
	for s.ctx.Err() == nil {
		c, err := s.listener.Accept()
		if err != nil {
			pause(s.ctx, redialFirst, nil) // for example too many open files
			continue
		}
		if err := tune(c); err != nil {
			c.Close()
			continue
		}
		b.admit(s, newStream(c, nil))
	}
}

// admit serves an accepted connection. If there are too many, it closes the one that was
// authenticated longest ago, or the first one that never was.
func (b *tcpBind) admit(s *session, x *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session != s {
		x.close()
		return
	}
	if len(s.streams) == maxStreams {
		oldest := slices.MinFunc(s.streams, func(a, b *stream) int {
			return cmp.Compare(a.authenticated.Load(), b.authenticated.Load())
		})
		s.streams = slices.DeleteFunc(s.streams, func(y *stream) bool { return y == oldest })
		oldest.close()
	}
	s.streams = append(s.streams, x)
	x.conn.SetReadDeadline(time.Now().Add(firstFrame))
	b.running.Go(x.write)
	b.running.Go(func() {
		s.read(x)
		b.mu.Lock()
		defer b.mu.Unlock()
		s.streams = slices.DeleteFunc(s.streams, func(y *stream) bool { return y == x })
	})
}

// read passes on the frames of a connection until it or the session ends.
func (s *session) read(x *stream) {
	defer x.close()
	defer context.AfterFunc(s.ctx, x.close)()
	frames := newFrameReader(x.conn)
	for first := true; ; first = false {
		whole, err := frames.next()
		if err != nil {
			return
		}
		if first && x.authenticated.Load() == 0 {
			x.conn.SetReadDeadline(time.Now().Add(proof))
		}
		x.lastReceived.Store(time.Now().UnixNano())
		to := s.others
		if x.authenticated.Load() != 0 {
			to = s.authenticated
		}
		select {
		case to <- received{whole, x.source}: // accepted after the frames before are copied
		case <-s.ctx.Done():
			return
		case <-x.done:
			return
		}
	}
}

// receiver returns the function by which WireGuard receives packets.
func (s *session) receiver() conn.ReceiveFunc {
	var r received
	return func(packets [][]byte, sizes []int, from []conn.Endpoint) (n int, err error) {
		if len(r.frames) == 0 {
			r = s.take()
		}
		if s.ctx.Err() != nil {
			return 0, net.ErrClosed
		}
		for ; n < len(packets) && len(r.frames) > 0; n++ {
			var message []byte
			message, r.frames = cutFrame(r.frames)
			sizes[n], from[n] = copy(packets[n], message), r.from
		}
		return n, nil
	}
}

// take waits for frames. Those of authenticated connections come first.
func (s *session) take() (r received) {
	select {
	case r = <-s.authenticated:
		return r
	default:
	}
	select {
	case r = <-s.authenticated:
	case r = <-s.others:
	case <-s.ctx.Done():
	}
	return r
}
