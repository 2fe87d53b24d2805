// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	kernel "github.com/liqo-go/liqo/network/plan"
)

const (
	// relayLimit is how many flows are relayed at once. A client that is asked to dial anew makes one
	// with each try; the limit is for others, who can send what they like.
	relayLimit = 64
	// relaySoon bounds the wait for the kernel to lead packets here; it takes some 20 ms.
	relaySoon = time.Second
	// datagramLimit is the longest UDP datagram, in bytes.
	datagramLimit = 1 << 16
)

// loopback leads to the tunnels of this pod.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// relay passes what comes new for our tunnels on to those of another pod, or of this one.
type relay struct {
	gateway *gateway
	// to is the address of the pod. Datagrams go there from then on, connections stay where they went.
	to   atomic.Pointer[netip.Addr]
	open []io.Closer
	all  sync.WaitGroup
}

// relay begins to relay: kube-proxy may lead the client here for up to 1 s after nodes were led to our successor. A
// client that is asked to come anew before would come back to us, so it returns when the kernel has the rules for it.
func (g *gateway) relay(ctx context.Context, to netip.Addr) *relay {
	r := &relay{gateway: g}
	r.to.Store(&to)
	var relays []kernel.Relay
	for _, port := range append([]int{g.ListenPort}, g.MoreListenPorts...) {
		own, err := r.listen(ctx, port, g.TCP)
		if err != nil {
			klog.FromContext(ctx).Error(err, "What the client sends anew cannot be relayed")
			continue
		}
		relays = append(relays, kernel.Relay{Port: port, To: own})
	}
	g.relays.Store(&relays)
	ctx, cancel := context.WithTimeout(ctx, relaySoon)
	defer cancel()
	g.Await(ctx)
	return r
}

// stop stops relaying; r may be nil.
func (r *relay) stop() {
	if r == nil {
		return
	}
	r.gateway.relays.Store(nil)
	for _, in := range r.open {
		in.Close()
	}
	r.all.Wait()
	r.gateway.Look()
}

// listen opens a port of ours, whichever is free, and relays what comes there to a port of the other pod.
func (r *relay) listen(ctx context.Context, port int, tcp bool) (own int, err error) {
	to := func() netip.AddrPort { return netip.AddrPortFrom(*r.to.Load(), uint16(port)) }
	if tcp {
		in, err := net.ListenTCP("tcp", nil)
		if err != nil {
			return 0, err
		}
		r.open = append(r.open, in)
		r.all.Go(func() { relayStreams(ctx, in, to) })
		return in.Addr().(*net.TCPAddr).Port, nil
	}
	conn, err := net.ListenUDP("udp", nil)
	if err != nil {
		return 0, err
	}
	r.open = append(r.open, conn)
	r.all.Go(func() { relayDatagrams(conn, to) })
	return conn.LocalAddr().(*net.UDPAddr).Port, nil
}

// relayStreams passes connections on until the listener is closed, and ends them then: the client makes
// another, which kube-proxy leads to the successor by now.
func relayStreams(ctx context.Context, in *net.TCPListener, to func() netip.AddrPort) {
	ctx, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	free := make(chan struct{}, relayLimit)
	for {
		from, err := in.Accept()
		if errors.Is(err, net.ErrClosed) {
			break
		}
		if err != nil {
			pause(ctx, moveEvery) // too many open files, say
			continue
		}
		select {
		case free <- struct{}{}:
			all.Go(func() {
				relayStream(ctx, from, to())
				<-free
			})
		default:
			from.Close()
		}
	}
	end()
	all.Wait()
}

// relayStream passes one connection on until either side or the context ends.
func relayStream(ctx context.Context, from net.Conn, to netip.AddrPort) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	defer from.Close()
	out, err := (&net.Dialer{Timeout: moveFor}).DialContext(ctx, "tcp", to.String())
	if err != nil {
		return // the client tries again
	}
	defer out.Close()
	go func() {
		defer end()
		io.Copy(out, from)
	}()
	go func() {
		defer end()
		io.Copy(from, out)
	}()
	<-ctx.Done()
}

// relayDatagrams passes datagrams on and answers back until the socket is closed.
func relayDatagrams(in *net.UDPConn, to func() netip.AddrPort) {
	var answers sync.WaitGroup
	flows := map[netip.AddrPort]*net.UDPConn{}
	defer func() {
		for _, out := range flows {
			out.Close()
		}
		answers.Wait()
	}()
	at := to()
	for b := make([]byte, datagramLimit); ; {
		n, from, err := in.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		if now := to(); now != at {
			for _, out := range flows {
				out.Close()
			}
			at, flows = now, map[netip.AddrPort]*net.UDPConn{}
		}
		out := flows[from]
		if out == nil && len(flows) < relayLimit {
			if out, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to())); err != nil {
				continue // lost, as on any way; WireGuard tries again
			}
			flows[from] = out
			answers.Go(func() { answer(in, out, from) })
		}
		if out != nil {
			_, _ = out.Write(b[:n])
		}
	}
}

// answer passes back what comes for one flow until its socket is closed.
func answer(in, out *net.UDPConn, to netip.AddrPort) {
	for b := make([]byte, datagramLimit); ; {
		n, err := out.Read(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil { // others say that nobody listens yet
			_, _ = in.WriteToUDPAddrPort(b[:n], to)
		}
	}
}
