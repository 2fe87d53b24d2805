// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

// Package threads runs the Go code of a process on one thread while one suffices. Work that passes
// from goroutine to goroutine, such as packets in WireGuard, wakes another thread at each step if
// there are several. Waking costs more than the work: measured on 2 cores, a gateway on one thread
// carried two fifths more small requests and took a fifth less CPU for a Gbit.
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
	// check is the interval at which the CPU time of this process is checked. A load that needs
	// several threads has only one for at most that long.
	check = time.Second
	// growAbove is the load, in cores, above which one thread does not suffice. System calls count,
	// although they run on other threads.
	growAbove = 0.9
	// shrinkBelow is the load, in cores, below which one thread suffices again. Several threads
	// need more CPU for the same work, so this equals about 0.55 on one thread.
	shrinkBelow = 0.7
)

// Keep runs Go code on one thread, or on Go's default number under load, until ctx ends. It does
// nothing if the variable GOMAXPROCS is set.
func Keep(ctx context.Context) {
	if os.Getenv("GOMAXPROCS") == "" {
		keep(ctx, cpuTime, shared.busy)
	}
}

// Blocking runs f, which starts a program and waits for it, with several threads. With one thread,
// all other work of the process would wait for 10 to 20 ms, until Go notices, or for the whole
// call.
func Blocking(f func()) {
	shared.block(1)
	defer shared.block(-1)
	f()
}

// decision holds whether the process uses several threads.
type decision struct {
	use func(several bool)

	mu sync.Mutex
	// kept is set if Keep decides, and several holds its decision; blocked counts the running calls
	// of Blocking.
	kept, several bool
	blocked       int
}

var shared = decision{use: use}

// busy sets the decision of Keep.
func (d *decision) busy(several bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kept, d.several = true, several
	d.use(several || d.blocked > 0)
}

// block adds to the number of running calls. A change of the number of threads stops them all for a
// moment, so it is made only when needed.
func (d *decision) block(more int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.blocked
	if d.blocked += more; d.kept && !d.several && (before == 0) != (d.blocked == 0) {
		d.use(d.blocked > 0)
	}
}

// keep checks the CPU time used, and calls several when the decision changes.
func keep(ctx context.Context, used func() time.Duration, several func(bool)) {
	ticker := time.NewTicker(check)
	defer ticker.Stop()
	now, before, began := false, used(), time.Now()
	several(now)
	for {
		select {
		case <-ctx.Done():
			several(true)
			return
		case <-ticker.C:
		}
		after, ended := used(), time.Now()
		if next := needed(now, (after-before).Seconds()/ended.Sub(began).Seconds()); next != now {
			now = next
			several(now)
		}
		before, began = after, ended
	}
}

// needed reports whether a load, in cores, needs several threads.
func needed(several bool, load float64) bool {
	if several {
		return load >= shrinkBelow
	}
	return load > growAbove
}

// use sets the number of threads: one, or the number of cores or the container's limit.
func use(several bool) {
	if several {
		runtime.SetDefaultGOMAXPROCS()
	} else {
		runtime.GOMAXPROCS(1)
	}
}

// cpuTime returns the CPU time that this process has used, including the kernel's for it.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // cannot happen
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
