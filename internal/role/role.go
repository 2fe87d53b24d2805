// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package role makes the command of a binary that holds roles of Liqo.
package role

import (
	"flag"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// Root is command liqo with the roles a binary holds. As those of Kubernetes, each takes --v, how
// much it logs.
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
