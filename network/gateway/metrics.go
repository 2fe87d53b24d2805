// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"time"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/daemon"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// metrics are those of the tunnel, read when they are asked for. A replica that has not the tunnel has
// none: its zeros would look like a connection that is lost.
func (g *gateway) metrics() []daemon.Metric {
	if !g.leads.Load() {
		return nil
	}
	var traffic kernel.Traffic
	implementation := g.plane.Implementation(api.TunnelInterface(0))
	for n := range g.devices() {
		t := g.trafficOf(n)
		traffic.Received, traffic.Sent = traffic.Received+t.Received, traffic.Sent+t.Sent
	}
	connected, last := 0.0, netv1beta1.Connecting
	if written := g.reported.Load(); written != nil {
		last = *written
	}
	h, value := g.health(time.Now(), last)
	if value == netv1beta1.Connected {
		connected = 1
	}
	labels := daemon.Label("driver", "wireguard") + "," + daemon.Label("cluster_id", g.RemoteClusterID)
	return []daemon.Metric{
		{Name: "liqo_peer_receive_bytes_total", Type: "counter", Help: "Bytes received from the peer.", Labels: labels, Value: float64(traffic.Received)},
		{Name: "liqo_peer_transmit_bytes_total", Type: "counter", Help: "Bytes sent to the peer.", Labels: labels, Value: float64(traffic.Sent)},
		{Name: "liqo_peer_latency_us", Type: "gauge", Help: "Round trip to the peer's gateway in microseconds.", Labels: labels, Value: float64(h.Latency.Microseconds())},
		g.pinger.histogram.Metric(daemon.Metric{
			Name: "liqo_peer_latency_histogram_us", Help: "Round trips to the peer's gateway in microseconds.", Labels: labels,
		}),
		{Name: "liqo_peer_is_connected", Type: "gauge", Help: "1 while the peer's gateway answers, else 0.", Labels: labels, Value: connected},
		{Name: "liqo_peer_tunnel_info", Type: "gauge", Help: "1; the label says where WireGuard runs.",
			Labels: labels + "," + daemon.Label("implementation", implementation), Value: 1},
	}
}
