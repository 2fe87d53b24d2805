// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package daemon

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/liqo-go/liqo/internal/metrics"
)

// Metric is one series, with the help text and type of its name.
type Metric struct {
	Name, Help string
	// Type is counter, gauge or histogram.
	Type string
	// Labels are results of Label, separated by commas.
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
func Label(name, value string) string { return metrics.Labels(name, value) }

// page prints metrics in the text format. Metrics of the same name must be adjacent.
func page(all []Metric) string {
	var p metrics.Page
	for i, m := range all {
		if i == 0 || all[i-1].Name != m.Name {
			p.Family(m.Name, m.Type, m.Help)
		}
		if m.Buckets == nil {
			p.Sample(m.Name, m.Labels, m.Value)
			continue
		}
		var count uint64
		for _, bucket := range m.Buckets {
			count = bucket.Count
			limit := Label("le", strconv.FormatFloat(bucket.UpTo, 'g', -1, 64))
			p.Sample(m.Name+"_bucket", strings.TrimPrefix(m.Labels+","+limit, ","), float64(count))
		}
		p.Sample(m.Name+"_sum", m.Labels, m.Value)
		p.Sample(m.Name+"_count", m.Labels, float64(count))
	}
	return p.String()
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
	last              atomic.Int64 // time of the last reconcile without error, in seconds since 1970; 0 = none yet
}

func (c *counts) metrics() []Metric {
	return []Metric{
		{
			Name: "liqo_network_changes_total", Type: "counter", Value: float64(c.changes.Load()),
			Help: "Changes made to links, routes, rules and tunnels.",
		},
		{
			Name: "liqo_network_failures_total", Type: "counter", Value: float64(c.failures.Load()),
			Help: "Failed reconciles of the kernel.",
		},
		{
			Name: "liqo_network_last_look_timestamp_seconds", Type: "gauge", Value: float64(c.last.Load()),
			Help: "Time of the last look at the kernel that ended well.",
		},
	}
}
