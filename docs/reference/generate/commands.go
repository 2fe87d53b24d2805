// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/liqo-go/liqo/cli"
)

// commands writes a section for each command of liqoctl that users may call.
func commands(t *text) error {
	streams := genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard}
	root := cli.Root("liqoctl", streams)
	t.printf("%s\n\nAll commands take these flags:\n", root.Long)
	flags(t, root.PersistentFlags())
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Runnable() && c != root && !groups(c) {
			command(t, c)
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				walk(sub)
			}
		}
	}
	walk(root)
	return nil
}

// groups reports whether a command only prints which subcommands it has.
func groups(c *cobra.Command) bool {
	return c.HasAvailableSubCommands() && !c.HasAvailableLocalFlags()
}

func command(t *text, c *cobra.Command) {
	description := c.Long
	if description == "" {
		description = c.Short
	}
	t.printf("\n## %s\n\n%s\n\n```text\n%s\n```\n", c.CommandPath(), strings.TrimSpace(description), c.UseLine())
	if len(c.Aliases) > 0 {
		t.printf("\nAlso: `%s`.\n", strings.Join(c.Aliases, "`, `"))
	}
	if c.Example != "" {
		t.printf("\n```text\n%s\n```\n", strings.TrimRight(c.Example, "\n"))
	}
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.AddFlagSet(c.LocalFlags())
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f != c.Root().PersistentFlags().Lookup(f.Name) {
			all.AddFlag(f)
		}
	})
	flags(t, all)
}

// flags writes the table of the visible flags of a set, or nothing if it has none.
func flags(t *text, set *pflag.FlagSet) {
	header := false
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if !header {
			t.header("flag", "type", "default", "meaning")
			header = true
		}
		name := code("--" + f.Name)
		if f.Shorthand != "" {
			name += ", " + code("-"+f.Shorthand)
		}
		kind, usage := pflag.UnquoteUsage(f)
		t.row(name, kind, code(f.DefValue), usage)
	})
}
