// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package role makes the command of a binary that holds roles of Liqo.
package role

import (
	"flag"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// Root returns command liqo with the roles of a binary as subcommands. Each has Kubernetes' flag
// --v, the verbosity of its log.
func Root(roles ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "liqo",
		Short:         "Joins independent Kubernetes clusters as peers",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(roles...)
	logging := flag.NewFlagSet("logging", flag.ContinueOnError)
	klog.InitFlags(logging)
	cmd.PersistentFlags().AddGoFlag(logging.Lookup("v"))
	return cmd
}
