// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command liqo runs every process of Liqo; its first argument is the role. This binary has the
// roles that carry traffic. It links few packages, because these processes are many and may change
// a node's network. For other roles it executes liqo-control, which is in the same folder.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/liqo-go/liqo/internal/echo"
	"github.com/liqo-go/liqo/internal/role"
	"github.com/liqo-go/liqo/internal/threads"
	"github.com/liqo-go/liqo/network/fabric"
	"github.com/liqo-go/liqo/network/gateway"
	"github.com/liqo-go/liqo/peering/proxy"
	"github.com/liqo-go/liqo/storage/mover"
)

func main() {
	logger := role.Log(os.Stderr)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go threads.Keep(ctx)
	if err := root().ExecuteContext(ctx); err != nil {
		logger.Error(err, "stopped")
		os.Exit(1)
	}
}

// root returns the command with all roles.
func root() *cobra.Command {
	return role.Root(
		fabric.Command(), gateway.Command(), proxy.Command(), echo.Command(), mover.Command(),
		control("controller", "Runs identity, peering, networking and offloading controllers, and admission"),
		control("kubelet", "Keeps one virtual node and reflects the objects of its pods"),
		control("cleanup", "Removes what Liqo made in the cluster, before it is uninstalled"),
		control("kinds", "Applies the kinds of this version, before an upgrade"),
		control("check", "Checks an installation, for helm test"),
	)
}

// control returns the command for a role of liqo-control, which replaces this process (exec).
func control(role, short string) *cobra.Command {
	return &cobra.Command{
		Use: role, Short: short, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			own, err := os.Executable()
			if err != nil {
				return fmt.Errorf("find own binary: %w", err)
			}
			program := filepath.Join(filepath.Dir(own), "liqo-control")
			return fmt.Errorf("become %s: %w", program, syscall.Exec(program, os.Args, os.Environ()))
		},
	}
}
