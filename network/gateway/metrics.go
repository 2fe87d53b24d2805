// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/dataplane"
)

// collector reads the tunnel when it is asked.
type collector struct {
	g                                      *gateway
	received, sent, latency, connected, by *prometheus.Desc
}

// metrics are those of the tunnel.
func (g *gateway) metrics() prometheus.Gatherer {
	labels := prometheus.Labels{"driver": "wireguard", "cluster_id": g.RemoteClusterID}
	describe := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, more, labels)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(&collector{
		g:         g,
		received:  describe("liqo_peer_receive_bytes_total", "Bytes received from the peer."),
		sent:      describe("liqo_peer_transmit_bytes_total", "Bytes sent to the peer."),
		latency:   describe("liqo_peer_latency_us", "Round trip to the peer's gateway in microseconds."),
		connected: describe("liqo_peer_is_connected", "1 while the peer's gateway answers, else 0."),
		by:        describe("liqo_peer_tunnel_info", "1; the label says where WireGuard runs.", "implementation"),
	}, g.pinger.latencies(labels))
	return registry
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	var traffic dataplane.Traffic
	implementation := dataplane.Kernel
	key, _ := c.g.peer.Load().(string)
	if c.g.Daemon != nil {
		c.g.With(func(d *dataplane.Dataplane) {
			implementation = d.Implementation(api.TunnelInterface(0))
			// Without a tunnel the counters are zero.
			traffic, _ = d.Traffic(api.TunnelInterface(0), key)
		})
	}
	h := c.g.pinger.Health()
	connected := 0.0
	if h.Connection(h.Answered, netv1beta1.Connecting, c.g.Ping) == netv1beta1.Connected {
		connected = 1
	}
	out <- prometheus.MustNewConstMetric(c.received, prometheus.CounterValue, float64(traffic.Received))
	out <- prometheus.MustNewConstMetric(c.sent, prometheus.CounterValue, float64(traffic.Sent))
	out <- prometheus.MustNewConstMetric(c.latency, prometheus.GaugeValue, float64(h.Latency.Microseconds()))
	out <- prometheus.MustNewConstMetric(c.connected, prometheus.GaugeValue, connected)
	out <- prometheus.MustNewConstMetric(c.by, prometheus.GaugeValue, 1, implementation)
}

// latencies is the histogram the pings fill.
func (p *pinger) latencies(labels prometheus.Labels) prometheus.Collector {
	p.histogram = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "liqo_peer_latency_histogram_us", Help: "Round trips to the peer's gateway in microseconds.", ConstLabels: labels,
		Buckets: prometheus.ExponentialBuckets(100, 2, 14), // 100 µs to 0.8 s
	})
	return p.histogram
}
