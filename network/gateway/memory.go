// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// calmCheck is between two looks at the traffic.
	calmCheck = 5 * time.Second
	// calmBytes is the most that passes in that time while the tunnel is calm: 1 MB/s.
	calmBytes = 5_000_000
	// calmFor is how many looks in a row find calm before memory goes back: a minute, for getting it
	// again took 3 % of the CPU time of transfers of 5 s that followed each other.
	calmFor = 12
	// garbage is the number of bytes allocated since memory was given back last, before it is again.
	garbage = 8 << 20
	// collectAt is how much garbage is left, in percent of what is in use. WireGuard holds 24 MB that it seldom
	// touches, and by default as much again would be: that of looks at the network. Collecting is cheap there,
	// for these are bytes in which no pointers are looked for; the traffic carried was the same as with 100.
	// At 25 percent, a change with 1000 peers took 4.9 ms of CPU, at 50 percent 3.5 ms. An idle gateway used
	// 23 MB at either; its memory under load was not compared.
	collectAt = 50
)

// returnMemory gives memory back while little passes the tunnel. WireGuard inside this process
// takes 64 KiB for every packet in flight: measured, 150 MB after seconds of load, of which nothing
// had come back two minutes later.
func (g *gateway) returnMemory(ctx context.Context) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	var before int64
	calm := 0 // looks in a row
	allocated := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(allocated)
	for returned := allocated[0].Value.Uint64(); ctx.Err() == nil; pause(ctx, calmCheck) {
		now := g.carried()
		if calm++; now-before >= calmBytes {
			calm = 0
		}
		before = now
		metrics.Read(allocated)
		if calm >= calmFor && allocated[0].Value.Uint64()-returned >= garbage {
			debug.FreeOSMemory() // pools let go of what two collections in a row find unused
			debug.FreeOSMemory()
			returned, calm = allocated[0].Value.Uint64(), 0
		}
	}
	return nil
}

// carried returns the bytes that passed the tunnels so far.
func (g *gateway) carried() (all int64) {
	for _, t := range g.tunnels.traffic(g.last().Peer) {
		all += t.Received + t.Sent
	}
	return all
}
