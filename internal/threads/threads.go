// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Package threads runs the Go code of a process on one thread while one is enough. Work that goes from
// goroutine to goroutine, as a packet does in WireGuard and an object between watch, queue and worker, wakes
// a thread at each step when there are several, and the waking costs more than the work: measured on 2 cores,
// a gateway on one thread carried two fifths more small requests and took a fifth less CPU for a Gbit.
package threads

import (
	"context"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	// check is between two looks at the CPU time of this process. A load that needs more than one thread has
	// only one for so long.
	check = time.Second
	// growAbove is the load, in cores, from which on one thread is no longer enough. Calls to the kernel count,
	// which other threads make, too.
	growAbove = 0.9
	// shrinkBelow is the load, in cores, below which one thread is enough again. Several threads need
	// more for the same work, so this is about 0.55 of one.
	shrinkBelow = 0.7
)

// Keep runs Go code on one thread, or on as many as Go takes by itself while there is work for them, until
// ctx ends. It does nothing where the variable GOMAXPROCS has decided.
func Keep(ctx context.Context) {
	if os.Getenv("GOMAXPROCS") == "" {
		keep(ctx, cpuTime, shared.busy)
	}
}

// Blocking runs f, which starts a program and waits for it. On one thread all other work of the process would
// wait until then, or for 10 to 20 ms until Go notices, so f gets several.
func Blocking(f func()) {
	shared.block(1)
	defer shared.block(-1)
	f()
}

// decision is whether there are several threads, or one.
type decision struct {
	use func(several bool)

	mu sync.Mutex
	// kept says that Keep decides, and several what it decided; blocked is how many calls of Blocking run.
	kept, several bool
	blocked       int
}

var shared = decision{use: use}

// busy is told by Keep.
func (d *decision) busy(several bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kept, d.several = true, several
	d.use(several || d.blocked > 0)
}

// block counts calls that run. To change the number of threads stops all of them for a moment, so that is not
// done without need.
func (d *decision) block(more int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.blocked
	if d.blocked += more; d.kept && !d.several && (before == 0) != (d.blocked == 0) {
		d.use(d.blocked > 0)
	}
}

// keep looks at the CPU time used so far and says when several threads shall run, and when one.
func keep(ctx context.Context, used func() time.Duration, several func(bool)) {
	looks := time.NewTicker(check)
	defer looks.Stop()
	now, before, began := false, used(), time.Now()
	several(now)
	for {
		select {
		case <-ctx.Done():
			several(true)
			return
		case <-looks.C:
		}
		after, ended := used(), time.Now()
		if next := needed(now, (after-before).Seconds()/ended.Sub(began).Seconds()); next != now {
			now = next
			several(now)
		}
		before, began = after, ended
	}
}

// needed says whether a load, in cores, needs several threads.
func needed(several bool, load float64) bool {
	if several {
		return load >= shrinkBelow
	}
	return load > growAbove
}

// use takes several threads, as many as there are cores or as the container's limit allows, or one.
func use(several bool) {
	if several {
		runtime.SetDefaultGOMAXPROCS()
	} else {
		runtime.GOMAXPROCS(1)
	}
}

// cpuTime is what this process has used so far, that of the kernel for it included.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // which it never is
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
