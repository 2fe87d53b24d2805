// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// single are the flags of verbs that work on one object of one peer.
type single struct {
	env       *env
	namespace string
	liqo      *pflag.Flag
	peer      clusterID
	output    string
	// ownTenant: the verb finds or makes the tenant namespace itself.
	ownTenant bool
	// anywhere: the object lies where the others of the peer's network do. Without them and without a
	// tenant namespace the one the kubeconfig chooses will do.
	anywhere bool
	wait     bool
	timeout  time.Duration
}

// noun makes a subcommand like "create configuration" and adds the common flags.
func (e *env) noun(parent *cobra.Command, use, short string, aliases ...string) (*cobra.Command, *single) {
	o := &single{env: e}
	cmd := &cobra.Command{Use: use, Short: short, Aliases: aliases, Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions}
	if use != nounOf(use) {
		cmd.Args = cobra.ExactArgs(1)
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.namespace, "namespace", "n", "", "Namespace of the object (default: the tenant namespace of the peer)")
	o.liqo = addLiqoFlag(flags, "liqo-namespace", "", "")
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

// networkObject is for objects that work in any one namespace, joined by the peer's label.
func (o *single) networkObject(cmd *cobra.Command) {
	o.needPeer(cmd, "Cluster ID of the peer")
	o.outputFlag(cmd, "", usageOutput)
	o.anywhere = true
	cmd.Flags().Lookup("namespace").Usage = "Namespace of the object (default: where the peer's network is, else its tenant namespace, else that of the kubeconfig)"
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
	c, err := o.env.here(ctx, o.liqo)
	if err != nil {
		return nil, err
	}
	c.tenant = o.namespace
	if o.peer == "" || o.ownTenant {
		return c, nil
	}
	if o.anywhere && c.tenant == "" {
		if err := c.findNetwork(ctx, string(o.peer)); err != nil {
			return nil, err
		}
		c.tenant = orDefault(c.network, c.current)
	}
	return c, c.needTenant(ctx, string(o.peer))
}

// act runs the work of a verb on the cluster, within its time.
func (o *single) act(cmd *cobra.Command, work func(s *script, c *cluster) error) error {
	if o.output != "" {
		if err := checkFormat(o.output); err != nil {
			return err
		}
	}
	s, stop := o.env.newScript(cmd.Context(), o.timeout)
	defer stop()
	c, err := o.cluster(s.ctx)
	if err != nil {
		return err
	}
	return work(s, c)
}

// maker says how to make an object.
type maker struct {
	build func(ctx context.Context, c *cluster) (client.Object, error)
	// asks about what the object, made in place of another, would destroy; nil when nothing can be.
	asks func(s *script, c *cluster, object client.Object) error
	// said is printed when the object is there.
	said string
	// done waits for what follows; nil when nothing does.
	done func(s *script, c *cluster, object client.Object) error
}

// run applies what is built, or prints it.
func (o *single) run(cmd *cobra.Command, m maker) error {
	return o.act(cmd, func(s *script, c *cluster) error { return o.make(s, c, m) })
}

func (o *single) make(s *script, c *cluster, m maker) error {
	object, err := m.build(s.ctx, c)
	if err != nil {
		return err
	}
	if o.output != "" {
		return o.env.print(o.output, object)
	}
	if m.asks != nil {
		if err := m.asks(s, c, object); err != nil {
			return err
		}
	}
	if err := c.apply(s.ctx, object); err != nil {
		return err
	}
	s.info(nowhere, "%s", m.said)
	if m.done == nil {
		return nil
	}
	return m.done(s, c, object)
}
