// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command liqo is every process of Liqo; its first argument is the role. The roles that carry
// traffic are in this binary, which links little: there are many of them, and they may change a
// node's network. For the others it becomes liqo-control, which lies beside it.
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

// root lists the roles.
func root() *cobra.Command {
	return role.Root(
		fabric.Command(), gateway.Command(), proxy.Command(), echo.Command(), mover.Command(),
		control("controller", "Runs identity, peering, networking and offloading controllers, and admission"),
		control("kubelet", "Keeps one virtual node and reflects the objects of its pods"),
		control("cleanup", "Removes what Liqo made in the cluster, before it is uninstalled"),
	)
}

// control is a role of the binary beside this one, which takes this process over, arguments and all.
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
