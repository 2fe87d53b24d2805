// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"

	"github.com/spf13/cobra"
)

// helpCommand returns the verb help. Unlike cobra's, it fails for a command that does not exist.
func helpCommand() *cobra.Command {
	return &cobra.Command{Use: "help [command…]", Short: "Show the help of a command",
		Example: "  liqoctl help\n  liqoctl help offload namespace",
		Args:    cobra.ArbitraryArgs,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			of, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, sub := range available(of) {
				names = append(names, cobra.CompletionWithDesc(sub.Name(), sub.Short))
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err == nil {
				err = noArguments(of, rest)
			}
			if err != nil {
				return err
			}
			of.InitDefaultHelpFlag() // so that the help names --help
			return of.Help()
		}}
}

// available returns the subcommands that help texts list.
func available(cmd *cobra.Command) (out []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			out = append(out, sub)
		}
	}
	return out
}

// addCompletionCommand adds cobra's verb completion, with the help that all verbs have. Without the name
// of a shell, it shows help.
func addCompletionCommand(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	all := root.Commands()
	completion := all[slices.IndexFunc(all, func(c *cobra.Command) bool { return c.Name() == "completion" })]
	completion.Short = "Print the script by which a shell completes commands, flags and names"
	completion.Long = completion.Short + ". A shell that starts loads it from the file of the example;\n" +
		"in bash and zsh, 'source <(liqoctl completion bash)' loads it at once."
	completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	files := map[string]string{"bash": "/etc/bash_completion.d/liqoctl", "zsh": "~/.zfunc/_liqoctl",
		"fish": "~/.config/fish/completions/liqoctl.fish", "powershell": "liqoctl.ps1"}
	for _, shell := range completion.Commands() {
		shell.Short, shell.Long = "Print the completion script of "+shell.Name(), ""
		shell.Example = "  liqoctl completion " + shell.Name() + " > " + files[shell.Name()]
		shell.Flags().Lookup("no-descriptions").Usage = "Leave out descriptions"
	}
}
