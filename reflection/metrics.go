// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics measure what virtual kubelets do. Several of one process share them.
type metrics struct {
	items, errors *prometheus.CounterVec
	waits         *waits
}

func newMetrics(registry prometheus.Registerer) (m *metrics, err error) {
	m = &metrics{}
	if m.items, err = register(registry, counter("liqo_virtual_kubelet_reflection_item_counter",
		"Objects looked at by the reflection.")); err != nil {
		return nil, err
	}
	if m.errors, err = register(registry, counter("liqo_virtual_kubelet_reflection_error_counter",
		"Objects whose reflection failed.")); err != nil {
		return nil, err
	}
	m.waits, err = register(registry, &waits{workers: map[*worker]bool{}, oldest: prometheus.NewDesc(
		"liqo_virtual_kubelet_reflection_oldest_seconds",
		"How long the object waits that has waited longest to be reflected, for retries or for the provider's caches; "+
			"0 if none waits.",
		[]string{"reflector_resource", "cluster_id", "node_name"}, nil)})
	return m, err
}

func counter(name, help string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help},
		[]string{"namespace", "reflector_resource", "cluster_id", "node_name"})
}

// register registers a collector, or finds the one registered before. Nothing is registered if
// registry is nil.
func register[C prometheus.Collector](registry prometheus.Registerer, collector C) (C, error) {
	if registry == nil {
		return collector, nil
	}
	err := registry.Register(collector)
	var before prometheus.AlreadyRegisteredError
	if errors.As(err, &before) {
		if same, ok := before.ExistingCollector.(C); ok {
			return same, nil
		}
	}
	if err != nil {
		return collector, fmt.Errorf("register metric: %w", err)
	}
	return collector, nil
}

// waits collects how long objects wait in the queues of running engines.
type waits struct {
	oldest *prometheus.Desc

	mu      sync.Mutex
	workers map[*worker]bool
}

// include measures the queues of workers until done is called.
func (w *waits) include(workers []*worker) (done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, of := range workers {
		w.workers[of] = true
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, of := range workers {
			delete(w.workers, of)
		}
	}
}

// Describe implements prometheus.Collector.
func (w *waits) Describe(to chan<- *prometheus.Desc) { to <- w.oldest }

// Collect implements prometheus.Collector.
func (w *waits) Collect(to chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	type labels struct{ kind, peer, node string }
	longest := map[labels]time.Duration{}
	for of := range w.workers {
		key := labels{of.Name, of.engine.Peer, of.engine.Node}
		longest[key] = max(longest[key], of.queue.oldest(time.Now()))
	}
	for l, wait := range longest {
		to <- prometheus.MustNewConstMetric(w.oldest, prometheus.GaugeValue, wait.Seconds(), l.kind, l.peer, l.node)
	}
}
