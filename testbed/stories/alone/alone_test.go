// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package alone

import (
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// TestRunWaits: who shares the lock keeps others from running alone until it is closed.
func TestRunWaits(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	waits, works := share(t, name), share(t, name)
	ran := make(chan error)
	var began atomic.Bool
	go func() { ran <- waits.Run(func() { began.Store(true) }) }()
	for range 1000 {
		runtime.Gosched()
	}
	if began.Load() {
		t.Error("ran beside another one")
	}
	works.Close()
	if err := <-ran; err != nil || !began.Load() {
		t.Errorf("ran: %t, %v", began.Load(), err)
	}
}

// TestRunOneByOne: of those that want to run alone each does, and no two at once.
func TestRunOneByOne(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	var all sync.WaitGroup
	var running, ran atomic.Int32
	for range 3 {
		lock := share(t, name)
		all.Go(func() {
			err := lock.Run(func() {
				if n := running.Add(1); n != 1 {
					t.Errorf("%d run at once", n)
				}
				for range 1000 {
					runtime.Gosched()
				}
				running.Add(-1)
				ran.Add(1)
			})
			if err != nil {
				t.Error(err)
			}
			lock.Close()
		})
	}
	all.Wait()
	if ran.Load() != 3 {
		t.Errorf("%d of 3 ran", ran.Load())
	}
}

func share(t *testing.T, name string) *Lock {
	t.Helper()
	lock, err := Share(name)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}
