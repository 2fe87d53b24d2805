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
	"time"

	"k8s.io/klog/v2"

	kernel "github.com/liqo-go/liqo/network/plan"
)

const (
	// relayLimit is how many flows are relayed at once. A client that is asked to dial again makes
	// one with each try; the limit is for others, who can send what they like.
	relayLimit = 64
	// relayDial bounds a connection to the other pod, and relayRest is the pause after one that
	// could not be accepted, for example because of too many open files.
	relayDial, relayRest = 2 * time.Second, 100 * time.Millisecond
	// datagramLimit is the longest UDP datagram, in bytes.
	datagramLimit = 1 << 16
)

// relay passes new flows for the local tunnels on to those of another pod, or of this one.
type relay struct {
	open []io.Closer
	all  sync.WaitGroup
	mu   sync.Mutex
	// to is the address of the pod. When it changes, datagrams go to the new one, and connections
	// stay.
	to netip.Addr
}

// openRelay opens a relay for the ports of tunnels, and returns the redirections it needs.
func openRelay(ctx context.Context, to netip.Addr, ports []int, tcp bool) (*relay, []kernel.Relay) {
	r := &relay{to: to}
	var relays []kernel.Relay
	for _, port := range ports {
		own, err := r.listen(ctx, port, tcp)
		if err != nil {
			klog.FromContext(ctx).Error(err, "What the client sends anew cannot be relayed")
			continue
		}
		relays = append(relays, kernel.Relay{Port: port, To: own})
	}
	return r, relays
}

// redirect changes the pod, and reports whether there is a relay; r may be nil.
func (r *relay) redirect(to netip.Addr) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	return true
}

func (r *relay) address() netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.to
}

// close stops the relay; r may be nil.
func (r *relay) close() {
	if r == nil {
		return
	}
	for _, in := range r.open {
		in.Close()
	}
	r.all.Wait()
}

// listen opens any free port, and relays what comes there to a port of the other pod.
func (r *relay) listen(ctx context.Context, port int, tcp bool) (own int, err error) {
	to := func() netip.AddrPort { return netip.AddrPortFrom(r.address(), uint16(port)) }
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

// relayStreams passes connections on until the listener is closed, and ends them then: the client
// makes another, which kube-proxy leads to the successor by now.
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
			time.Sleep(relayRest)
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
	out, err := (&net.Dialer{Timeout: relayDial}).DialContext(ctx, "tcp", to.String())
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

// answer passes back the answers to one flow until its socket is closed.
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
