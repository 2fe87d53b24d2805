// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// idleTimeout is how long an unused server is kept. An idle server uses 1 % of a processor, 1.2 s of
// CPU in this time. A start uses 5 to 8 s.
const idleTimeout = 2 * time.Minute

// idle holds the unused servers of this process, each in its first state.
var idle struct {
	sync.Mutex
	servers []*Server
}

// take returns a shared server, an idle one of this process, or a new one: always that for flags.
func take(ctx context.Context, flags []string) (*Server, error) {
	if len(flags) > 0 {
		return launch(ctx, flags)
	}
	if socket := os.Getenv(shareVariable); socket != "" && strings.HasSuffix(socket, network()) {
		return borrow(ctx, socket)
	}
	idle.Lock()
	if n := len(idle.servers); n > 0 {
		s := idle.servers[n-1]
		idle.servers = idle.servers[:n-1]
		idle.Unlock()
		return s, nil
	}
	idle.Unlock()
	return launch(ctx, nil)
}

// give returns a server for the next test and resets it. One that cannot be reset is stopped.
func give(s *Server) error {
	if s.stopped {
		return nil
	}
	if s.lease != nil {
		return giveBack(s.lease)
	}
	if len(s.flags) > 0 {
		s.Stop()
		return nil
	}
	reset, err := s.reset()
	if !reset {
		s.Stop()
		return err
	}
	idle.Lock()
	defer idle.Unlock()
	s.returnedAt = time.Now()
	idle.servers = append(idle.servers, s)
	time.AfterFunc(idleTimeout, s.retire)
	return err
}

// retire stops a server that has been idle for the timeout.
func (s *Server) retire() {
	idle.Lock()
	i := slices.Index(idle.servers, s)
	if i < 0 || time.Since(s.returnedAt) < idleTimeout {
		idle.Unlock()
		return
	}
	idle.servers = slices.Delete(idle.servers, i, i+1)
	idle.Unlock()
	s.Stop()
}

// workdir returns the directory of all servers. A shell removes it when this process ends, however
// it ends: the shell waits for the end of its input, whose other end only this process holds.
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
		_ = cmd.Wait() // the shell outlives this process, and its input must stay open
		_ = held.Close()
	}()
	return dir, nil
})
