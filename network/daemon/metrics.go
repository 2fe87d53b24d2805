// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package daemon

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
)

// Metric is one series, with the help text and type of its name. The text format of Prometheus
// takes a dozen lines; its library would be a third of the process, see docs/decisions/0007.
type Metric struct {
	Name, Help string
	// Type is counter, gauge or histogram.
	Type string
	// Labels are written unchanged: name="value", separated by commas.
	Labels string
	Value  float64
	// Buckets are the buckets of a histogram, whose Value is the sum; nil = the metric is no
	// histogram.
	Buckets []Bucket
}

// Bucket counts the values up to a limit, including those of smaller buckets.
type Bucket struct {
	UpTo  float64
	Count uint64
}

// Label returns the text of one label.
func Label(name, value string) string { return name + "=" + strconv.Quote(value) }

// writeMetrics writes metrics in the text format. Metrics of the same name must be adjacent.
func writeMetrics(w io.Writer, all []Metric) {
	b := bufio.NewWriter(w)
	defer b.Flush()
	for i, m := range all {
		if i == 0 || all[i-1].Name != m.Name {
			fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", m.Name, m.Help, m.Name, m.Type)
		}
		if m.Buckets == nil {
			sample(b, m.Name, m.Labels, m.Value)
			continue
		}
		var count uint64
		for _, bucket := range m.Buckets {
			count = bucket.Count
			sample(b, m.Name+"_bucket", joined(m.Labels, Label("le", number(bucket.UpTo))), float64(count))
		}
		sample(b, m.Name+"_sum", m.Labels, m.Value)
		sample(b, m.Name+"_count", m.Labels, float64(count))
	}
}

func sample(w io.Writer, name, labels string, value float64) {
	if labels != "" {
		labels = "{" + labels + "}"
	}
	fmt.Fprintf(w, "%s%s %s\n", name, labels, number(value))
}

func joined(labels, more string) string {
	if labels == "" {
		return more
	}
	return labels + "," + more
}

// number returns the shortest text of the value.
func number(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// Histogram counts values by size.
type Histogram struct {
	mu     sync.Mutex
	limits []float64
	counts []uint64 // one more than limits, for larger values
	sum    float64
}

// NewHistogram returns a histogram whose buckets end at the limits, in ascending order.
func NewHistogram(limits ...float64) *Histogram {
	return &Histogram{limits: limits, counts: make([]uint64, len(limits)+1)}
}

// Observe counts a value.
func (h *Histogram) Observe(v float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := 0
	for i < len(h.limits) && v > h.limits[i] {
		i++
	}
	h.counts[i]++
	h.sum += v
}

// Metric sets the type, sum and buckets of a metric.
func (h *Histogram) Metric(m Metric) Metric {
	h.mu.Lock()
	defer h.mu.Unlock()
	m.Type, m.Value, m.Buckets = "histogram", h.sum, nil
	var count uint64
	for i, n := range h.counts {
		count += n
		limit := math.Inf(1)
		if i < len(h.limits) {
			limit = h.limits[i]
		}
		m.Buckets = append(m.Buckets, Bucket{limit, count})
	}
	return m
}

// counts holds the metrics that every role has.
type counts struct {
	changes, failures atomic.Int64
	last              atomic.Int64 // time of the last look without error, in seconds since 1970; 0 = none yet
}

func (c *counts) metrics() []Metric {
	return []Metric{
		{Name: "liqo_network_changes_total", Type: "counter", Help: "Changes made to links, routes, rules and tunnels.", Value: float64(c.changes.Load())},
		{Name: "liqo_network_failures_total", Type: "counter", Help: "Looks at the kernel that ended with an error.", Value: float64(c.failures.Load())},
		{Name: "liqo_network_last_look_timestamp_seconds", Type: "gauge", Help: "Time of the last look at the kernel that ended well.", Value: float64(c.last.Load())},
	}
}
