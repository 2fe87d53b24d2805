// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// figure is one line of the table.
type figure struct {
	Group, Name string
	Value       float64
	Unit        string
	Beside      *float64 `json:",omitempty"` // the same without Liqo, in the same unit
	Ratio       *float64 `json:",omitempty"` // Value / Beside
	Target      string   `json:",omitempty"`
	Reached     *bool    `json:",omitempty"`
	Note        string   `json:",omitempty"`
}

// beside compares with what was measured without Liqo.
func (f figure) beside(alone float64) figure {
	f.Beside = &alone
	if alone != 0 {
		f.Ratio = new(f.Value / alone)
	}
	return f
}

// of sets the value to the median of all rounds, and compares it with the median without Liqo. The values of a round
// have the same index.
func (f figure) of(ours, native []float64) figure {
	f.Value = median(ours)
	f = f.beside(median(native))
	var each []string
	ratios := make([]float64, 0, len(ours))
	for i := range min(len(ours), len(native)) {
		each = append(each, fmt.Sprintf("%.2f/%.2f", ours[i], native[i]))
		ratios = append(ratios, ours[i]/native[i])
	}
	f.Note = fmt.Sprintf("%s, without Liqo %s, ratio %s; rounds %s", span(ours), span(native), span(ratios), strings.Join(each, " "))
	return f
}

// span is the least and the most of some values.
func span(values []float64) string {
	return fmt.Sprintf("%.2f to %.2f", slices.Min(values), slices.Max(values))
}

// below is a target for the value itself.
func (f figure) below(limit float64) figure {
	f.Target, f.Reached = fmt.Sprintf("< %g %s", limit, f.Unit), new(f.Value < limit)
	return f
}

// atMost and atLeast are targets for the ratio.
func (f figure) atMost(limit float64) figure {
	f.Target, f.Reached = fmt.Sprintf("≤ %g ×", limit), new(f.Ratio != nil && *f.Ratio <= limit)
	return f
}

func (f figure) atLeast(limit float64) figure {
	f.Target, f.Reached = fmt.Sprintf("≥ %g ×", limit), new(f.Ratio != nil && *f.Ratio >= limit)
	return f
}

func (f figure) row() string {
	beside, ratio, reached := "", "", ""
	if f.Beside != nil {
		beside = fmt.Sprintf("%.2f", *f.Beside)
	}
	if f.Ratio != nil {
		ratio = fmt.Sprintf("%.2f", *f.Ratio)
	}
	if f.Reached != nil {
		reached = map[bool]string{true: "reached", false: "NOT reached"}[*f.Reached]
	}
	return fmt.Sprintf("%s\t%s\t%.2f\t%s\t%s\t%s\t%s\t%s\t%s", f.Group, f.Name, f.Value, f.Unit, beside, ratio, f.Target, reached, f.Note)
}

// report is all figures, in the order in which they were measured.
type report struct{ figures []figure }

// add also prints the figure at once: a run takes many minutes.
func (r *report) add(f figure) {
	r.figures = append(r.figures, f)
	fmt.Fprintf(os.Stderr, "bench:   %s: %.2f %s %s\n", f.Name, f.Value, f.Unit, f.Note)
}

// write prints the table, and the same as JSON into a file. Then it is an error that a target was not reached.
func (r *report) write(w io.Writer, file string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "GROUP\tFIGURE\tVALUE\tUNIT\tWITHOUT LIQO\tRATIO\tTARGET\t\tNOTE")
	for _, f := range r.figures {
		fmt.Fprintln(table, f.row())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	content, err := json.MarshalIndent(map[string]any{"date": time.Now().UTC().Format(time.RFC3339), "figures": r.figures}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, append(content, '\n'), 0o644); err != nil {
		return err
	}
	return r.missed()
}

// missed is an error that names the figures that did not reach their target; nil when all did.
func (r *report) missed() error {
	var names []string
	for _, f := range r.figures {
		if f.Reached != nil && !*f.Reached {
			names = append(names, f.Group+": "+f.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("NOT reached:\n%s", strings.Join(names, "\n"))
}
