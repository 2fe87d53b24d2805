// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package ctl

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestGauges: neither values with equal labels nor an error fail a scrape, which has other metrics, too.
func TestGauges(t *testing.T) {
	for _, c := range []struct {
		values []Gauge
		err    error
		want   int
	}{
		{[]Gauge{{1, []string{"a"}}, {2, []string{"b"}}, {3, []string{"a"}}}, nil, 2},
		{[]Gauge{{1, []string{"a"}}}, errors.New("no cache"), 0},
	} {
		g := gauges{desc: prometheus.NewDesc("liqo_test", "Test.", []string{"x"}, nil)}
		g.Read = func(context.Context, client.Reader) ([]Gauge, error) { return c.values, c.err }
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(g)
		families, err := registry.Gather()
		got := 0
		for _, f := range families {
			got += len(f.Metric)
		}
		if err != nil || got != c.want {
			t.Errorf("%d values, %v; want %d", got, err, c.want)
		}
	}
}
