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
	// calmCheck is the time between two checks of the allocations.
	calmCheck = 10 * time.Second
	// calmBytes is the maximum that an idle process allocates in that time: 1 MB/s. Measured, an
	// idle controller of one peer allocates 0.2 MB/s.
	calmBytes = 10_000_000
	// calmFor is the number of idle checks in a row after which memory is returned.
	calmFor = 3
	// collectAt is GOGC: the garbage that is left, in percent of the live heap. Measured with a
	// burst of 1000 pods, all processes of Liqo take 17 to 21 MB at 50 %, 20 to 32 at 75 and 29 at
	// Go's 100. They take 6.7, 6.5 and 6.3 s of CPU then, of the 43 of all processes of both
	// clusters.
	collectAt = 50
)

// returnMemory sets collectAt, and returns memory to the system when a burst is over. Without that,
// the garbage of a burst is collected only after nearly as much has been allocated again, which may
// take hours.
func returnMemory(ctx context.Context, check time.Duration) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	ticker := time.NewTicker(check)
	defer ticker.Stop()
	allocated := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(allocated)
	before := allocated[0].Value.Uint64()
	calm := 0 // idle checks in a row
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
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
