// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// single is a subcommand that works on one object of one peer, such as "create configuration NAME".
type single struct {
	*cobra.Command
	env *env
	// name is the argument; empty if the subcommand takes none.
	name      string
	namespace string
	peer      string
	output    string
	// ownTenant reports that the verb finds or creates the tenant namespace itself.
	ownTenant bool
	// anywhere reports that the object belongs in the namespace of the peer's network objects. If
	// there are none, it is the tenant namespace, else the namespace of the kubeconfig.
	anywhere bool
	wait     bool
	// before runs before the cluster is contacted and reports whether the work is done.
	before func() (done bool, err error)
}

// work runs a subcommand on its cluster.
type work func(s *script, c *cluster) error

// addNoun adds a subcommand like "create configuration" with the common flags.
func (e *env) addNoun(parent *cobra.Command, noun string, aliases []string, sub subcommand) {
	o := &single{env: e, Command: &cobra.Command{Use: noun, Short: sub.short, Aliases: aliases,
		ValidArgsFunction: cobra.NoFileCompletions}}
	if sub.arg != "" {
		o.Use += " " + sub.arg
		o.Args = oneArgument
	}
	flags := o.Flags()
	o.Example = "  liqoctl " + parent.Name() + " " + noun + " " + sub.example
	if verb := parent.Name(); verb != "generate" && verb != "get" {
		e.addDryRunFlag(flags)
	}
	flags.StringVarP(&o.namespace, "namespace", "n", "",
		"Namespace of the object (default: the tenant namespace of the peer)")
	addLiqoFlag(flags, "liqo-namespace", "", "")
	addTimeoutFlag(flags, 2*time.Minute)
	do := sub.setup(o)
	o.RunE = func(_ *cobra.Command, args []string) error {
		o.name = strings.Join(args, "")
		return o.execute(e, do)
	}
	parent.AddCommand(o.Command)
}

// needPeer adds the required flag with the peer's ID.
func (o *single) needPeer(usage string) {
	o.Flags().Var((*clusterID)(&o.peer), "remote-cluster-id", usage)
	require(o.Command, "remote-cluster-id")
}

// networkObject adds the flags of objects that work in any namespace, selected by the peer's label.
func (o *single) networkObject() {
	o.needPeer("Cluster ID of the peer")
	o.manifestFlag()
	o.anywhere = true
	o.Flags().Lookup("namespace").Usage = "Namespace of the object " +
		"(default: where the peer's network is, else its tenant namespace, else that of the kubeconfig)"
}

func require(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // a flag that was never added: a programming error
		}
	}
}

// outputFlag adds the flag for the format of what is printed. The first format is the default; it may
// be empty.
func (o *single) outputFlag(usage, format string, further ...string) {
	o.Flags().VarP(choice(&o.output, format, further...), "output", "o", usage)
}

// manifestFlag adds the flag that prints the object to be created.
func (o *single) manifestFlag() {
	o.outputFlag(usageManifest, "", "json", "yaml", "name")
	o.PreRun = func(*cobra.Command, []string) { o.printsOnly() }
}

func (o *single) printsOnly() bool { return o.env.printsOnly(o.Command, o.output) }

// deletedFlag adds the flag that prints the names of deleted objects.
func (o *single) deletedFlag() { o.outputFlag("Print what is deleted", "", "name") }

const usageManifest = "Print the object and create nothing, unless --dry-run says otherwise"

// printsOnly makes it a dry run if the user wants to see a manifest and does not say what is to
// become of it. It reports whether the cluster is not needed to print it.
func (e *env) printsOnly(cmd *cobra.Command, output string) bool {
	if output != "" && !cmd.Flags().Changed("dry-run") {
		e.dryRun = dryRunClient
	}
	return output != "" && e.dryRun == dryRunClient
}

// completes sets the completion of the argument.
func (o *single) completes(from names) {
	o.ValidArgsFunction = firstOnly(o.env.completion(from))
}

// findNamespace sets the tenant namespace of the cluster to the namespace of the object.
func (o *single) findNamespace(ctx context.Context, c *cluster) error {
	c.tenant = o.namespace
	if o.peer == "" || o.ownTenant {
		return nil
	}
	if o.anywhere && c.tenant == "" {
		if err := c.findNetwork(ctx, o.peer); err != nil {
			return err
		}
		c.tenant = cmp.Or(c.network, c.current)
	}
	return c.needTenant(ctx, o.peer)
}

// execute runs a subcommand within its timeout.
func (o *single) execute(e *env, do work) error {
	if o.before != nil {
		if done, err := o.before(); done || err != nil {
			return err
		}
	}
	return e.onInstallation(o.Command, func(s *script, c *cluster) error {
		if err := o.findNamespace(s.ctx, c); err != nil {
			return err
		}
		return do(s, c)
	})
}

// print writes objects to standard output in the format of the output flag.
func (o *single) print(objects ...client.Object) error { return o.env.print(o.output, objects...) }
