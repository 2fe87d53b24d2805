// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package mover

import (
	"context"
	"os"

	"github.com/spf13/cobra"
)

// terminationLog is the file that Kubernetes shows as the message of a terminated container.
const terminationLog = "/dev/termination-log"

// Command returns the role's command with its verbs: a server for the volume, and two clients for the
// copy.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mover",
		Short: "Copy the data of a volume",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	volume := ""
	cmd.PersistentFlags().StringVar(&volume, "volume", "/volume", "where the volume is mounted")
	s := &server{}
	cmd.PersistentFlags().Int64Var(&s.size, "size", 0, "size of the claim in bytes: what is larger is not taken")
	_ = cmd.MarkPersistentFlagRequired("size") // it is defined
	address := ":8080"
	serve := &cobra.Command{
		Use: "serve", Short: "Give and take what is in the volume", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.volume = volume
			return s.serve(cmd.Context(), address)
		},
	}
	serve.Flags().StringVar(&s.tokenHash, "token-hash", "", "SHA-256 of the token clients have to know")
	serve.Flags().StringVar(&address, "listen", address, "address to listen at")
	cmd.AddCommand(serve,
		clientCommand("pull", "Copy the volume of a server", &volume, &s.size, (*client).pull),
		clientCommand("push", "Bring the copy into the volume of a server", &volume, &s.size, (*client).push))
	return cmd
}

// clientCommand returns a command that calls do for the server at an address. The token is in $TOKEN.
func clientCommand(name, short string, volume *string, size *int64,
	do func(*client, context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use: name + " <address>", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := newClient(args[0], os.Getenv("TOKEN"), *volume, cmd.OutOrStdout())
			c.size = *size
			err := c.retry(cmd.Context(), func(ctx context.Context) error { return do(c, ctx) })
			if err != nil {
				_ = os.WriteFile(terminationLog, []byte(err.Error()), 0o600) // outside a container there is none
			}
			return err
		},
	}
}
