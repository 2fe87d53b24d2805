// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// calmCheck is between two looks at what is allocated.
	calmCheck = 10 * time.Second
	// calmBytes is the most that is allocated in that time while nothing happens: 1 MB/s. Measured, an idle
	// controller of one peer allocates 0.2 MB/s.
	calmBytes = 10_000_000
	// calmFor is how many looks in a row find calm before memory goes back.
	calmFor = 3
	// collectAt is how much garbage is left, in percent of what is in use. Measured, a burst of 1000 pods takes 17 to
	// 21 MB in all our processes at 50 %, 20 to 32 at 75 and 29 at Go's 100, and 6.7, 6.5 and 6.3 s of CPU of the 43
	// that all processes of both clusters need for it.
	collectAt = 50
)

// returnMemory keeps little garbage, and gives memory back when a burst is over: what a burst leaves would be
// collected only when nearly as much again has been allocated, which may take hours.
func returnMemory(ctx context.Context, check time.Duration) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	looks := time.NewTicker(check)
	defer looks.Stop()
	allocated := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(allocated)
	before := allocated[0].Value.Uint64()
	calm := 0 // looks in a row
	for {
		select {
		case <-ctx.Done():
			return
		case <-looks.C:
		}
		metrics.Read(allocated)
		now := allocated[0].Value.Uint64()
		if calm++; now-before > calmBytes {
			calm = 0
		}
		if calm == calmFor {
			debug.FreeOSMemory()
		}
		before = now
	}
}
