// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"text/tabwriter"
)

// side holds the build and the results of one version: this tree or a commit.
type side struct {
	name string
	bin  string // folder with its liqoctl and image
	// values holds one value per round, by group, name and unit of the figure. If a figure has a value without Liqo,
	// this is the ratio to it.
	values map[string][]float64
}

// against measures this tree and a commit in turns, on new clusters each time, and prints both. The figures of a
// commit against itself show how much of a difference is chance.
func against(ctx context.Context, commit string, rounds int) error {
	b, err := newBed(ctx)
	if err != nil {
		return err
	}
	source := filepath.Join(b.bin, "against")
	if err := errors.Join(os.RemoveAll(source), os.MkdirAll(source, 0o755)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c",
		`git archive "$1" | tar -x -C "$2" && make -C "$2" image && make image`, "bash", commit, source)
	cmd.Dir = filepath.Dir(b.bin)
	if _, err := output(cmd); err != nil {
		return fmt.Errorf("build %s and this tree: %w", commit, err)
	}
	sides := []*side{{"this tree", b.bin, map[string][]float64{}}, {commit, filepath.Join(source, "bin"), map[string][]float64{}}}
	var names []string
	for round := range rounds {
		for i := range sides {
			s := sides[(round+i)%2] // who goes first changes
			fmt.Fprintf(os.Stderr, "bench: round %d of %d: %s\n", round+1, rounds, s.name)
			figures, err := once(ctx, filepath.Join(b.bin, "bench.json"), s.bin)
			if err != nil {
				return fmt.Errorf("measure %s: %w", s.name, err)
			}
			for _, f := range figures {
				name := fmt.Sprintf("%s\t%s\t%s", f.Group, f.Name, f.Unit)
				value := f.Value
				if f.Ratio != nil {
					name, value = fmt.Sprintf("%s\t%s\t×", f.Group, f.Name), *f.Ratio
				}
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
				s.values[name] = append(s.values[name], value)
			}
		}
	}
	return compared(os.Stdout, names, rounds, *sides[0], *sides[1])
}

// once runs this program again, with the same flags, and reads the figures that it leaves in a file.
func once(ctx context.Context, file, bin string) ([]figure, error) {
	if err := os.RemoveAll(file); err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, append(slices.Clone(os.Args[1:]), "-against=", "-measured="+bin)...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it removes its clusters
	failed := cmd.Run()                                                   // also if a target was not reached
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	var measured struct{ Figures []figure }
	if err := json.Unmarshal(text, &measured); err != nil {
		return nil, err
	}
	return measured.Figures, ctx.Err()
}

// compared prints the medians of both sides, with least and most, and their ratio. A figure that is missing in a round
// is only named.
func compared(w io.Writer, names []string, rounds int, here, there side) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "GROUP\tFIGURE\tUNIT\t%s\t\t%s\t\tRATIO\n", here.name, there.name)
	for _, name := range names {
		ours, theirs := here.values[name], there.values[name]
		if len(ours) < rounds || len(theirs) < rounds {
			fmt.Fprintf(table, "%s\t%d rounds\t\t%d rounds\n", name, len(ours), len(theirs))
			continue
		}
		fmt.Fprintf(table, "%s\t%.2f\t%s\t%.2f\t%s\t%.3f\n", name, median(ours), span(ours), median(theirs), span(theirs), median(ours)/median(theirs))
	}
	return table.Flush()
}
