// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/liqo-go/liqo/network/daemon"
	"github.com/liqo-go/liqo/network/gateway/plan"
)

// Command is the role "gateway" with the documented flags of the containers it replaces.
func Command() *cobra.Command {
	var f plan.Flags
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Carries the traffic of one peer",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.Options()
			if err != nil {
				return err
			}
			cfg, err := daemon.Config()
			if err != nil {
				return err
			}
			return Run(cmd.Context(), cfg, o)
		},
	}
	f.Add(cmd.Flags(), os.Getenv)
	cmd.AddCommand(daemon.ShowCommand("gateway"))
	return cmd
}
