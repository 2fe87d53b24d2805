// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// noArguments refuses arguments. If the command has subcommands, the error suggests the nearest one.
func noArguments(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case !cmd.HasAvailableSubCommands():
		return forHelp(cmd, fmt.Errorf("unexpected arguments: %s", strings.Join(args, " ")))
	}
	var known []string
	for _, sub := range available(cmd) {
		known = append(append(known, sub.Name()), sub.Aliases...)
	}
	err := fmt.Errorf("unknown command %q for %q", args[0], cmd.CommandPath())
	if near := meant(args[0], known); near != "" {
		return hint(err, "did you mean %q?", near)
	}
	return forHelp(cmd, err)
}

// oneArgument wants exactly one argument; the message calls it as the usage line does.
func oneArgument(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	_, name, _ := strings.Cut(cmd.Use, " ")
	return forHelp(cmd, fmt.Errorf("exactly one %s is required, got %d", strings.Trim(name, "<>"), len(args)))
}

// flagError suggests the nearest flag in place of an unknown one. If an unknown command comes before
// the flag, that is the error.
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	if cmd.HasAvailableSubCommands() {
		if wrong := cmd.ValidateArgs(cmd.Flags().Args()); wrong != nil {
			return wrong
		}
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	near := meant(unknown.GetSpecifiedName(), known)
	if unknown.GetSpecifiedShortnames() != "" || near == "" {
		return forHelp(cmd, err)
	}
	return hint(err, "did you mean --%s?", near)
}

// forHelp adds to an error how to get help about the command.
func forHelp(cmd *cobra.Command, err error) error {
	return hint(err, "see '%s --help'", cmd.CommandPath())
}

// meant returns the known word that the user most likely meant: the first that begins with word, or
// the nearest one; empty if none is near.
func meant(word string, known []string) string {
	word = strings.ToLower(word)
	if i := slices.IndexFunc(known, func(k string) bool { return strings.HasPrefix(k, word) }); i >= 0 {
		return known[i]
	}
	near := nearest(word, known)
	if editDistance(word, near) > len(word)/4+1 { // more is no typing error
		return ""
	}
	return near
}

// nearest returns the word with the smallest edit distance from text; of several, the first. Without
// words it is empty.
func nearest(text string, words []string) string {
	if len(words) == 0 {
		return ""
	}
	return slices.MinFunc(words, func(a, b string) int {
		return cmp.Compare(editDistance(text, a), editDistance(text, b))
	})
}

// editDistance returns how many letters must be inserted, deleted or replaced to turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1) // row[j] is the distance of the letters of a so far from b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			distance := diagonal
			if a[i] != b[j] {
				distance = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], distance
		}
	}
	return row[len(b)]
}
