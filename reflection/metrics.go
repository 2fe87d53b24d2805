// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count what virtual kubelets do. Several of one process share the same counters.
type metrics struct{ items, errors *prometheus.CounterVec }

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	items, err := counter(registry, "liqo_virtual_kubelet_reflection_item_counter",
		"Objects looked at by the reflection.")
	if err != nil {
		return nil, err
	}
	failures, err := counter(registry, "liqo_virtual_kubelet_reflection_error_counter",
		"Objects whose reflection failed.")
	if err != nil {
		return nil, err
	}
	return &metrics{items: items, errors: failures}, nil
}

// counter registers a counter, or finds the one registered before.
func counter(registry prometheus.Registerer, name, help string) (*prometheus.CounterVec, error) {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help},
		[]string{"namespace", "reflector_resource", "cluster_id", "node_name"})
	if registry == nil {
		return vec, nil
	}
	err := registry.Register(vec)
	var before prometheus.AlreadyRegisteredError
	if errors.As(err, &before) {
		if same, ok := before.ExistingCollector.(*prometheus.CounterVec); ok {
			return same, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("register metric %s: %w", name, err)
	}
	return vec, nil
}
