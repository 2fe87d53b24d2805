// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// dialer finds the server's address. It is empty on servers, to which the client comes.
type dialer struct {
	host  string
	port  int
	every time.Duration

	mu    sync.Mutex
	at    time.Time // of the last answer of the DNS
	found netip.AddrPort
}

// endpoint is where to dial; invalid when there is nothing to dial or no answer yet. A name is
// asked for again when the interval is over; the last address stays when there is no answer.
func (d *dialer) endpoint(ctx context.Context, now time.Time) netip.AddrPort {
	if d.host == "" {
		return netip.AddrPort{}
	}
	if a, err := netip.ParseAddr(d.host); err == nil {
		return netip.AddrPortFrom(a.Unmap(), uint16(d.port))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.found.IsValid() && now.Sub(d.at) < d.every {
		return d.found
	}
	// 5 s: a look at the kernel waits for it.
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", d.host)
	if err != nil || len(addrs) == 0 {
		klog.FromContext(ctx).Info("The name of the gateway server has no address", "name", d.host, "error", err)
		return d.found
	}
	next := netip.AddrPortFrom(addrs[0].Unmap(), uint16(d.port))
	for _, a := range addrs {
		if a.Unmap() == d.found.Addr() {
			next = d.found // a name with several addresses is no reason to move
		}
	}
	d.found, d.at = next, now
	return next
}

// forget makes the next endpoint ask the DNS again, and take another address when it has one.
func (d *dialer) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = time.Time{}
}
