// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
)

// idle are the servers of this process that no test uses, each in its first state.
var idle struct {
	sync.Mutex
	servers []*Server
}

// take returns an idle server, or a new one.
func take(t testing.TB) (*Server, error) {
	idle.Lock()
	if n := len(idle.servers); n > 0 {
		s := idle.servers[n-1]
		idle.servers = idle.servers[:n-1]
		idle.Unlock()
		return s, nil
	}
	idle.Unlock()
	return launch(t)
}

// give resets a server for the next test. One that cannot be reset is stopped.
func give(t testing.TB, s *Server) {
	if s.stopped {
		return
	}
	reset, err := s.reset()
	if err != nil {
		t.Logf("reset API server: %v", err)
	}
	if !reset {
		s.Stop()
		return
	}
	idle.Lock()
	idle.servers = append(idle.servers, s)
	idle.Unlock()
}

// workdir is the directory of all servers. It is removed when this process has ended, however it
// ends: a shell waits for the end of its input, whose other end only this process has.
var workdir = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "apitest-")
	if err != nil {
		return "", err
	}
	input, held, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer func() { _ = input.Close() }()
	cmd := exec.Command("sh", "-c", `read -r _; until rm -rf -- "$1"; do sleep 0.1; done`, "sh", dir)
	cmd.Stdin = input
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start sh: %w", err)
	}
	go func() {
		_ = cmd.Wait() // the shell outlives this process, and what it waits for stays open
		_ = held.Close()
	}()
	return dir, nil
})
