// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package threads

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestKeep lets a load come and go. Each second has its own.
func TestKeep(t *testing.T) {
	loads := []float64{0.1, 0.8, 0.89, 0.95, 1.8, 0.75, 0.6, 0.8, 0.95, 0.1}
	want := []bool{false, false, false, false, true, true, true, false, false, true, false, true} // at the start, after each second, at the end
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var used time.Duration
		several, got := true, []bool(nil)
		go keep(ctx, func() time.Duration { return used }, func(s bool) { several = s })
		synctest.Wait()
		got = append(got, several)
		for _, load := range loads {
			used += time.Duration(load * float64(check))
			time.Sleep(check)
			synctest.Wait()
			got = append(got, several)
		}
		stop()
		synctest.Wait()
		if got = append(got, several); !slices.Equal(got, want) {
			t.Errorf("several threads: %v, want %v", got, want)
		}
	})
}

func TestUse(t *testing.T) {
	all := runtime.GOMAXPROCS(0)
	use(false)
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("%d threads, want one", n)
	}
	use(true)
	if n := runtime.GOMAXPROCS(0); n != all {
		t.Errorf("%d threads, want %d", n, all)
	}
}

// TestKeepLeavesDecisions of whoever wrote the Deployment alone.
func TestKeepLeavesDecisions(t *testing.T) {
	t.Setenv("GOMAXPROCS", "3")
	done := make(chan struct{})
	go func() { Keep(t.Context()); close(done) }()
	<-done // it has nothing to do
	if n := runtime.GOMAXPROCS(0); n == 1 && runtime.NumCPU() > 1 {
		t.Error("one thread, though a variable decides")
	}
}

func TestCPUTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for began := cpuTime(); cpuTime() < began+20*time.Millisecond; {
		if ctx.Err() != nil {
			t.Fatal("work takes no CPU time")
		}
	}
}
