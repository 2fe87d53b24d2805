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

	"github.com/liqo-go/liqo/internal/patience"
)

// TestKeep raises and lowers the load. Each line is one second.
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

// TestBlocking shows that there are several threads while a call of Blocking runs, and one after
// it, unless the load needs several.
func TestBlocking(t *testing.T) {
	var got []bool
	d := decision{use: func(several bool) { got = append(got, several) }}
	for _, c := range []struct {
		name string
		do   func()
		want []bool
	}{
		{"nobody decides", func() { d.block(1); d.block(-1) }, nil},
		{"one thread is enough", func() { d.busy(false) }, []bool{false}},
		{"two calls", func() { d.block(1); d.block(1); d.block(-1); d.block(-1) }, []bool{true, false}},
		{"calm comes during a call", func() { d.busy(true); d.block(1); d.busy(false) }, []bool{true, true}},
		{"and then it ends", func() { d.block(-1) }, []bool{false}},
		{"a call under load", func() { d.busy(true); d.block(1); d.block(-1) }, []bool{true}},
	} {
		got = nil
		if c.do(); !slices.Equal(got, c.want) {
			t.Errorf("%s: several threads: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestBlockingThreads counts the threads during and after a call of Blocking.
func TestBlockingThreads(t *testing.T) {
	defer shared.busy(true)
	shared.busy(true)
	all := runtime.GOMAXPROCS(0)
	shared.busy(false)
	Blocking(func() {
		if n := runtime.GOMAXPROCS(0); n != all {
			t.Errorf("%d threads, want %d", n, all)
		}
	})
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("%d threads afterwards, want one", n)
	}
}

func TestUse(t *testing.T) {
	use(true) // the variable GOMAXPROCS, and the flag -cpu of tests, may have decided otherwise
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

// TestKeepLeavesDecisions shows that a variable GOMAXPROCS in the Deployment is respected.
func TestKeepLeavesDecisions(t *testing.T) {
	use(true)
	all := runtime.GOMAXPROCS(0)
	t.Setenv("GOMAXPROCS", "3")
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	Keep(ctx) // has nothing to do, and returns at once
	if ctx.Err() != nil || runtime.GOMAXPROCS(0) != all {
		t.Errorf("%d threads, want %d as before: a variable decides", runtime.GOMAXPROCS(0), all)
	}
}

func TestCPUTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	for began := cpuTime(); cpuTime() < began+20*time.Millisecond; {
		if ctx.Err() != nil {
			t.Fatal("work takes no CPU time")
		}
	}
}
