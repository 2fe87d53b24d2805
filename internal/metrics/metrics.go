// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics writes the text format of Prometheus, version 0.0.4, without its library: for
// gateway and fabric that would be a third of the process, see docs/decisions/0007, and the virtual
// kubelet passes on measurements of others with the times of theirs.
package metrics

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/liqo-go/liqo/api"
)

// ContentType is the Content-Type of a page.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Page is a page of metrics. The zero value is empty.
type Page struct{ strings.Builder }

// Family begins a metric: its samples follow. kind is counter, gauge or histogram.
func (p *Page) Family(name, kind, help string) {
	fmt.Fprintf(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// Sample writes a value. labels is the result of Labels, or empty.
func (p *Page) Sample(name, labels string, value float64) {
	fmt.Fprintf(p, "%s %g\n", series(name, labels), value)
}

// SampleAt writes a value that was measured at a time before the scrape.
func (p *Page) SampleAt(name, labels string, value float64, at time.Time) {
	fmt.Fprintf(p, "%s %g %d\n", series(name, labels), value, at.UnixMilli())
}

func series(name, labels string) string {
	if labels == "" {
		return name
	}
	return name + "{" + labels + "}"
}

// escapes holds all escapes of the format that printable text needs. A value written with %q may
// have others, with which the whole page is invalid.
var escapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// Labels formats label names and values, which alternate. Peers may write the values.
func Labels(pairs ...string) string {
	var labels []string
	for pair := range slices.Chunk(pairs, 2) {
		labels = append(labels, pair[0]+`="`+escapes.Replace(api.Printable(pair[1]))+`"`)
	}
	return strings.Join(labels, ",")
}
