// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"

	"k8s.io/klog/v2"

	"github.com/liqo-go/liqo/network/plan"
)

const (
	// relayLimit is how many flows are relayed at once. A client that is asked to dial anew makes one
	// with each try; the limit is for others, who can send what they like.
	relayLimit = 64
	// datagramLimit is the longest UDP datagram, in bytes.
	datagramLimit = 1 << 16
)

// relay passes what comes new for our tunnels on to those of another pod, until it is stopped:
// kube-proxy may lead the client here for up to 1 s after nodes were led to our successor.
func (g *gateway) relay(ctx context.Context, to netip.Addr) (stop func()) {
	var all sync.WaitGroup
	var open []*net.UDPConn
	var relays []plan.Relay
	for _, port := range append([]int{g.ListenPort}, g.MoreListenPorts...) {
		conn, err := net.ListenUDP("udp", nil)
		if err != nil {
			klog.FromContext(ctx).Error(err, "What the client sends anew cannot be relayed")
			continue
		}
		open = append(open, conn)
		relays = append(relays, plan.Relay{Port: port, To: conn.LocalAddr().(*net.UDPAddr).Port})
		all.Go(func() { relayTo(conn, netip.AddrPortFrom(to, uint16(port))) })
	}
	g.relays.Store(&relays)
	g.Look()
	return func() {
		g.relays.Store(nil)
		for _, conn := range open {
			conn.Close()
		}
		all.Wait()
		g.Look()
	}
}

// relayTo passes datagrams on and answers back until the socket is closed.
func relayTo(in *net.UDPConn, to netip.AddrPort) {
	var answers sync.WaitGroup
	flows := map[netip.AddrPort]*net.UDPConn{}
	defer func() {
		for _, out := range flows {
			out.Close()
		}
		answers.Wait()
	}()
	for b := make([]byte, datagramLimit); ; {
		n, from, err := in.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		out := flows[from]
		if out == nil && len(flows) < relayLimit {
			if out, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to)); err != nil {
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
