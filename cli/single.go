// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
)

// single are the flags of verbs that work on one object of one peer.
type single struct {
	env                      *env
	namespace, liqoNamespace string
	peer                     clusterID
	output                   string
	wait                     bool
	timeout                  time.Duration
}

// noun makes a subcommand like "create configuration" and adds the common flags.
func (e *env) noun(parent *cobra.Command, use, short string, aliases ...string) (*cobra.Command, *single) {
	o := &single{env: e}
	cmd := &cobra.Command{Use: use, Short: short, Aliases: aliases, Args: cobra.NoArgs}
	if use != nounOf(use) {
		cmd.Args = cobra.ExactArgs(1)
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.namespace, "namespace", "n", "", "Namespace of the object (default: the tenant namespace of the peer)")
	flags.StringVar(&o.liqoNamespace, "liqo-namespace", api.Namespace, "Namespace Liqo is installed in")
	flags.DurationVar(&o.timeout, "timeout", 2*time.Minute, "How long to wait in all")
	parent.AddCommand(cmd)
	return cmd, o
}

// nounOf is the first word of a usage line.
func nounOf(use string) string {
	for i, r := range use {
		if r == ' ' {
			return use[:i]
		}
	}
	return use
}

// needPeer adds the required flag with the peer's ID.
func (o *single) needPeer(cmd *cobra.Command, usage string) {
	cmd.Flags().Var(&o.peer, "remote-cluster-id", usage)
	require(cmd, "remote-cluster-id")
}

func require(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // a flag that was never added: a programming error
		}
	}
}

func (o *single) outputFlag(cmd *cobra.Command, value, usage string) {
	cmd.Flags().StringVarP(&o.output, "output", "o", value, usage)
}

// cluster reaches the cluster and finds the namespace of the object.
func (o *single) cluster(ctx context.Context) (*cluster, error) {
	c, err := o.env.here(ctx, o.liqoNamespace)
	if err != nil {
		return nil, err
	}
	c.tenant = o.namespace
	if o.peer == "" {
		return c, nil
	}
	return c, c.needTenant(ctx, string(o.peer))
}

// run applies what build makes, or prints it, and then waits for done, if there is any.
func (o *single) run(ctx context.Context, build func(*cluster) (client.Object, error), said string, done func(*script, *cluster, client.Object) error) error {
	s, stop := o.env.newScript(ctx, o.timeout)
	defer stop()
	c, err := o.cluster(s.ctx)
	if err != nil {
		return err
	}
	object, err := build(c)
	if err != nil {
		return err
	}
	if o.output != "" {
		return o.env.print(o.output, object)
	}
	if err := c.apply(s.ctx, object); err != nil {
		return err
	}
	s.info(nowhere, "%s", said)
	if done == nil {
		return nil
	}
	return done(s, c, object)
}
