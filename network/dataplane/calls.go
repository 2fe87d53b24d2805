// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"strings"
	"sync/atomic"

	"golang.zx2c4.com/wireguard/device"

	"github.com/liqo-go/liqo/network/plan"
)

// Calls returns the rejected handshakes of a tunnel. It reports false for a tunnel of the kernel,
// which does not count them.
func (d *Dataplane) Calls(device string) (calls plan.Calls, counted bool) {
	d.tunnelling.Lock()
	defer d.tunnelling.Unlock()
	t, ok := d.tunnels[device].(userspaceTunnel)
	if !ok {
		return plan.Calls{}, false
	}
	c := t.calls
	return plan.Calls{Misaddressed: c.misaddressed.Load(), Strange: c.strange.Load(), Replayed: c.replayed.Load()}, true
}

// MTU returns the MTU of a device in bytes, or 0 if there is no such device.
func (d *Dataplane) MTU(device string) int {
	l, err := d.netlink.LinkByName(device)
	if err != nil {
		return 0
	}
	return l.Attrs().MTU
}

// calls counts rejected handshakes from the lines WireGuard would log, the only place where it
// reports them. TestRefusedHandshakesAreCounted fails if those lines change.
type calls struct {
	misaddressed, strange, replayed atomic.Int64
	// explained is the number of expected "invalid initiation" lines that must not be counted:
	// their handshakes are counted already, or are harmless.
	explained atomic.Int64
}

// logger returns a logger that counts lines and prints none: they repeat the state of the tunnel,
// sometimes once per packet.
func (c *calls) logger() *device.Logger {
	return &device.Logger{Verbosef: func(format string, _ ...any) { c.count(format) }, Errorf: device.DiscardLogf}
}

func (c *calls) count(line string) {
	switch {
	case line == "Received packet with invalid mac1":
		c.misaddressed.Add(1)
	case strings.HasSuffix(line, "handshake replay @ %v"):
		c.replayed.Add(1)
		c.explained.Add(1)
	case strings.HasSuffix(line, "handshake flood"): // two handshakes within 20 ms
		c.explained.Add(1)
	case strings.HasPrefix(line, "Received invalid initiation message"):
		if c.explained.Add(-1) < 0 {
			c.explained.Add(1)
			c.strange.Add(1)
		}
	}
}
