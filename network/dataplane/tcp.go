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
	// lasting is how long a connection must have been of use to be made again without a wait.
	lasting = time.Second
	// unusedAfter ends a connection we dialled and send nothing on. WireGuard's keepalive of a
	// client comes every 25 s.
	unusedAfter = time.Minute
	// staleAfter is how long a connection may be silent that is asked for anew: whoever asks has
	// waited for answers.
	staleAfter = time.Second
	// A connection somebody made to us must send a frame in time for firstFrame and be answered by
	// WireGuard in time for proof: the second attempt of a handshake comes after 5 s.
	firstFrame, proof = 5 * time.Second, 15 * time.Second
	// maxStreams bounds the connections made to us: a tunnel has one peer, the rest are
	// connections it left behind, and strangers. Each costs 2 × readSize of memory, so 8 MiB.
	maxStreams = 32
)

var errNotConnected = errors.New("there is no connection")

// tcpBind carries WireGuard's packets over TCP in place of UDP. With a port it is a server: it
// accepts connections, each an endpoint, and WireGuard itself finds out which of them is the peer's,
// for it moves an endpoint only after a packet it could authenticate. Without one it is a client: it
// dials, and dials again, the endpoints it is told to send to.
//
//	WireGuard ─▶ Send ─▶ queue ─▶ stream.write ═══TCP═══▶ read ─▶ receive ─▶ WireGuard
//
// A stranger can connect but not be heard: connections WireGuard did not answer end soon, give way
// to new ones, and wait until those it did answer have been read.
type tcpBind struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// connected is called after each dialled connection was made.
	connected func(to netip.AddrPort)
	// running are all goroutines.
	running sync.WaitGroup

	mu sync.Mutex
	// session is nil while the bind is closed.
	session *session
	lines   map[netip.AddrPort]*line
}

// session is what lives from Open to Close.
type session struct {
	ctx      context.Context
	end      context.CancelFunc
	listener net.Listener // nil on a client
	// streams are the connections made to us; guarded by the bind.
	streams []*stream
	// Frames received from who was answered, and from who was not.
	known, strange chan received
}

// received are whole frames of a connection.
type received struct {
	frames []byte
	from   conn.Endpoint
}

// line is an endpoint of a client. It outlives its connections.
type line struct {
	place
	// hurry ends the wait for the next attempt to connect.
	hurry chan struct{}
	// Guarded by the bind: the session in which it is kept connected, its connection, and when it
	// was last used.
	session *session
	stream  *stream
	used    time.Time
}

func newTCPBind(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *tcpBind {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	return &tcpBind{dial: dial, connected: func(netip.AddrPort) {}, lines: map[netip.AddrPort]*line{}}
}

// Open listens on a port; 0 = only dials.
func (b *tcpBind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session != nil {
		return nil, 0, conn.ErrBindAlreadyOpen
	}
	s := &session{known: make(chan received), strange: make(chan received)}
	s.ctx, s.end = context.WithCancel(context.Background())
	if port != 0 {
		var config net.ListenConfig
		config.SetMultipathTCP(false) // which knows no TCP_USER_TIMEOUT
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

// Close ends all connections. Goroutines end soon after it; WireGuard holds locks meanwhile that
// they may wait for, so only wait waits for them.
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

// hangUp ends the connections made to us.
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

// wait waits for the end of all goroutines after Close.
func (b *tcpBind) wait() { b.running.Wait() }

// SetMark is not used.
func (b *tcpBind) SetMark(uint32) error { return nil }

// BatchSize is how many packets are received at once.
func (b *tcpBind) BatchSize() int { return conn.IdealBatchSize }

// ParseEndpoint finds or makes an endpoint. A server has only those that came to it. Who asks for
// one we are connected to wants to begin anew, so a connection that is silent is made again.
func (b *tcpBind) ParseEndpoint(text string) (conn.Endpoint, error) {
	to, err := netip.ParseAddrPort(text)
	if err != nil {
		return nil, err
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.session; s != nil && s.listener != nil {
		if i := slices.IndexFunc(s.streams, func(x *stream) bool { return x.place == place(to) }); i >= 0 {
			return s.streams[i], nil
		}
		return place(to), nil
	}
	l, ok := b.lines[to]
	if !ok {
		l = &line{place: place(to), hurry: make(chan struct{}, 1)}
		b.lines[to] = l
	}
	if l.stream != nil && time.Since(time.Unix(0, l.stream.lastReceived.Load())) < staleAfter {
		return l, nil
	}
	if l.stream != nil {
		l.stream.close()
	}
	select {
	case l.hurry <- struct{}{}:
	default:
	}
	return l, nil
}

// Send queues packets to an endpoint; without a connection they are lost, as with UDP.
func (b *tcpBind) Send(packets [][]byte, to conn.Endpoint) error {
	var s *stream
	switch to := to.(type) {
	case *stream:
		s = to
		if len(packets) > 0 && isProof(packets[0]) {
			s.prove()
		}
	case *line:
		s = b.streamOf(to)
	}
	if s == nil {
		return errNotConnected
	}
	return s.send(packets)
}

// isProof tells whether a packet goes only to a peer that was authenticated. Cookies go to anybody.
func isProof(packet []byte) bool {
	return len(packet) > 0 && packet[0] != device.MessageCookieReplyType
}

func (s *stream) prove() {
	if s.proven.Swap(time.Now().UnixNano()) == 0 {
		s.conn.SetReadDeadline(time.Time{})
	}
}

// streamOf is the connection of a line, nil while there is none. It begins to keep one.
func (b *tcpBind) streamOf(l *line) *stream {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.used = time.Now()
	if s := b.session; s != nil && l.session != s {
		l.session = s
		b.lines[netip.AddrPort(l.place)] = l
		b.running.Go(func() { b.keep(l, s) })
	}
	return l.stream
}

// keep keeps a line connected until the session ends or nobody sends on it.
func (b *tcpBind) keep(l *line, s *session) {
	for wait := time.Duration(0); b.wanted(l, s); {
		pause(s.ctx, wait, l.hurry)
		began := time.Now()
		good := b.connect(l, s)
		wait = redialAfter(wait, good, time.Since(began))
	}
}

// redialAfter is how long to wait after a connection that was good or not and lasted for a time, before which it was
// waited. One that lasted is made again at once: a server that hands over has ended it, and another takes it.
func redialAfter(waited time.Duration, good bool, lasted time.Duration) time.Duration {
	switch {
	case good && lasted >= lasting:
		return 0
	case good:
		return redialFirst
	}
	return min(max(2*waited, redialFirst), redialMax)
}

// pause waits for a while, the end of the context, or hurry.
func pause(ctx context.Context, d time.Duration, hurry <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-hurry:
	}
}

// wanted tells whether a line is to be kept. One that is not can begin again.
func (b *tcpBind) wanted(l *line, s *session) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.ctx.Err() == nil && time.Since(l.used) < unusedAfter {
		return true
	}
	if l.session == s {
		l.session = nil
		delete(b.lines, netip.AddrPort(l.place))
	}
	return false
}

// connect makes a connection, serves it until it ends, and tells whether it was any good.
func (b *tcpBind) connect(l *line, s *session) bool {
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
	x.proven.Store(x.lastReceived.Load()) // we chose it
	if !b.install(l, s, x) {
		x.close()
		return false
	}
	made := x.lastReceived.Load()
	b.running.Go(x.write)
	b.running.Go(func() { b.watchUse(l, x) })
	b.connected(netip.AddrPort(l.place))
	s.read(x)
	b.mu.Lock()
	if l.stream == x {
		l.stream = nil
	}
	b.mu.Unlock()
	return x.lastReceived.Load() != made
}

// install puts the connection into its line, unless the session ended meanwhile.
func (b *tcpBind) install(l *line, s *session, x *stream) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session != s {
		return false
	}
	l.stream = x
	return true
}

// watchUse ends a connection nobody sends on.
func (b *tcpBind) watchUse(l *line, x *stream) {
	look := time.NewTicker(unusedAfter / 4)
	defer look.Stop()
	for {
		select {
		case <-x.done:
			return
		case <-look.C:
		}
		b.mu.Lock()
		unused := time.Since(l.used) >= unusedAfter
		b.mu.Unlock()
		if unused {
			x.close()
			return
		}
	}
}

// accept takes connections until the listener ends.
func (b *tcpBind) accept(s *session) {
	for s.ctx.Err() == nil {
		c, err := s.listener.Accept()
		if err != nil {
			pause(s.ctx, redialFirst, nil) // too many open files, say
			continue
		}
		if err := tune(c); err != nil {
			c.Close()
			continue
		}
		b.admit(s, newStream(c, nil))
	}
}

// admit serves a connection. When there are too many, the one whose proof is the oldest goes: of
// those without, the first that came.
func (b *tcpBind) admit(s *session, x *stream) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.session != s {
		x.close()
		return
	}
	if len(s.streams) == maxStreams {
		oldest := slices.MinFunc(s.streams, func(a, b *stream) int { return cmp.Compare(a.proven.Load(), b.proven.Load()) })
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

// read hands on what a connection brings until it or the session ends.
func (s *session) read(x *stream) {
	defer x.close()
	defer context.AfterFunc(s.ctx, x.close)()
	frames := newFrameReader(x.conn)
	for first := true; ; first = false {
		whole, err := frames.next()
		if err != nil {
			return
		}
		if first && x.proven.Load() == 0 {
			x.conn.SetReadDeadline(time.Now().Add(proof))
		}
		x.lastReceived.Store(time.Now().UnixNano())
		to := s.strange
		if x.proven.Load() != 0 {
			to = s.known
		}
		select {
		case to <- received{whole, x.source}: // taken when what was handed on before has been copied
		case <-s.ctx.Done():
			return
		case <-x.done:
			return
		}
	}
}

// receiver gives WireGuard what was received, as many packets as it takes.
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

// take waits for frames. Strangers come last.
func (s *session) take() (r received) {
	select {
	case r = <-s.known:
		return r
	default:
	}
	select {
	case r = <-s.known:
	case r = <-s.strange:
	case <-s.ctx.Done():
	}
	return r
}
