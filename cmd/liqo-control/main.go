// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command liqo-control has the roles that use API servers and carry no traffic. Users do not call
// it: command liqo executes it for these roles.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/liqo-go/liqo/deploy/check"
	"github.com/liqo-go/liqo/deploy/cleanup"
	"github.com/liqo-go/liqo/deploy/kinds"
	"github.com/liqo-go/liqo/internal/role"
)

func main() {
	logger := role.Log(os.Stderr)
	log.SetLogger(logger)
	ctx, stop := signal.NotifyContext(log.IntoContext(context.Background(), logger), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go returnMemory(ctx, calmCheck)
	if err := root().ExecuteContext(ctx); err != nil {
		logger.Error(err, "stopped")
		os.Exit(1)
	}
}

// root returns the command with the roles. Each has a file of its own.
func root() *cobra.Command {
	return role.Root(controller(), kubelet(), cleanup.Command(), kinds.Command(), check.Command())
}
