// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Gauges is a metric about the objects in the cache, which are read at each scrape. Every replica
// serves it, so queries take the maximum over pods.
type Gauges struct {
	// Name and Help are those of the metric, Labels the names of its labels.
	Name, Help string
	Labels     []string
	// Read returns all values; of several with equal labels the first counts. After an error the
	// metric is missing in the scrape.
	Read func(ctx context.Context, r client.Reader) ([]Gauge, error)
}

// Gauge is one value, with the values of the labels in the order of Gauges.Labels.
type Gauge struct {
	Value  float64
	Labels []string
}

// scrapeTime limits the reads of one scrape: until the caches have synced, reads wait.
const scrapeTime = 5 * time.Second

// Register adds the metric to those that the process serves. Another manager in the same process,
// as in tests, takes it over.
func (g Gauges) Register(mgr manager.Manager) error {
	collector := gauges{Gauges: g, desc: prometheus.NewDesc(g.Name, g.Help, g.Labels, nil), reader: mgr.GetCache()}
	for {
		err := metrics.Registry.Register(collector)
		var before prometheus.AlreadyRegisteredError
		if !errors.As(err, &before) {
			if err != nil {
				return fmt.Errorf("register metric %s: %w", g.Name, err)
			}
			return nil
		}
		metrics.Registry.Unregister(before.ExistingCollector)
	}
}

// gauges reads its values from a cache.
type gauges struct {
	Gauges
	desc   *prometheus.Desc
	reader client.Reader
}

// Describe implements prometheus.Collector.
func (g gauges) Describe(to chan<- *prometheus.Desc) { to <- g.desc }

// Collect implements prometheus.Collector.
func (g gauges) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	values, err := g.Read(ctx, g.reader)
	if err != nil {
		log.FromContext(ctx).V(1).Info("read metric", "metric", g.Name, "error", err.Error())
		return
	}
	seen := map[string]bool{} // a duplicate would fail the whole scrape, and peers choose some names
	for _, v := range values {
		key := strings.Join(v.Labels, "\xff")
		if seen[key] {
			continue
		}
		seen[key] = true
		to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, v.Value, v.Labels...)
	}
}
