// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package alone lets a process run something while no other process works that shares a lock with
// it.
package alone

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Lock is shared by processes that work side by side. It ends with the process, at the latest.
type Lock struct{ file *os.File }

// Share returns a lock on a file, which is made if it is missing. Share waits while another process
// runs alone.
func Share(name string) (*Lock, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	l := &Lock{file}
	if err := l.set(syscall.LOCK_SH); err != nil {
		file.Close()
		return nil, err
	}
	return l, nil
}

// Run calls do when each other process has closed its lock or waits in Run as well, and shares the
// lock again. Two processes that wait block neither: flock(2) releases the shared lock before it
// waits for the exclusive one.
func (l *Lock) Run(do func()) error {
	if err := l.set(syscall.LOCK_EX); err != nil {
		return err
	}
	do()
	return l.set(syscall.LOCK_SH)
}

// Close releases the lock.
func (l *Lock) Close() error { return l.file.Close() }

func (l *Lock) set(mode int) error {
	for {
		err := syscall.Flock(int(l.file.Fd()), mode)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("lock %s: %w", l.file.Name(), err)
		}
	}
}
