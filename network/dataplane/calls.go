// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"strings"
	"sync/atomic"

	"golang.zx2c4.com/wireguard/device"
)

// Calls counts handshakes that reached a tunnel and that WireGuard did not take.
type Calls struct {
	// Misaddressed were made for another key than ours, Strange ones by another key than a peer's.
	Misaddressed, Strange int64
	// Replayed are older than one that was taken.
	Replayed int64
}

// Calls tells what a tunnel did not take, if it can: that of the kernel tells nobody.
func (d *Dataplane) Calls(device string) (calls Calls, tells bool) {
	t, ok := d.tunnels[device].(userspaceTunnel)
	if !ok {
		return Calls{}, false
	}
	return Calls{t.calls.misaddressed.Load(), t.calls.strange.Load(), t.calls.replayed.Load()}, true
}

// MTU of a device in bytes; 0 = there is none of that name.
func (d *Dataplane) MTU(device string) int {
	l, err := d.netlink.LinkByName(device)
	if err != nil {
		return 0
	}
	return l.Attrs().MTU
}

// calls counts by what WireGuard would log, which is the only place where it tells.
// TestRefusedHandshakesAreCounted notices when that changes.
type calls struct {
	misaddressed, strange, replayed atomic.Int64
	// explained are lines still to come of handshakes that were counted, or are no fault.
	explained atomic.Int64
}

// logger takes the lines and prints none: they say only what the state of the tunnel says, once per
// packet at times.
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
	case strings.HasSuffix(line, "handshake flood"): // two within 20 ms
		c.explained.Add(1)
	case strings.HasPrefix(line, "Received invalid initiation message"):
		if c.explained.Add(-1) < 0 {
			c.explained.Add(1)
			c.strange.Add(1)
		}
	}
}
