// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pause holds the namespaces of a pod: it waits for the end of the pod and
// reaps processes whose parents have gone.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

func reap() {
	for {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid <= 0 {
			return
		}
	}
}
