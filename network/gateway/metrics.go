// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gateway

import (
	"time"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network/daemon"
)

// latencyLimits are 100 µs to 0.8 s, each twice the last.
func latencyLimits() (limits []float64) {
	for limit := 100.0; len(limits) < 14; limit *= 2 {
		limits = append(limits, limit)
	}
	return limits
}

// metrics returns those of the tunnel. A replica without the tunnel has none: its zeros would look
// like a lost connection.
func (g *gateway) metrics() []daemon.Metric {
	s := g.last()
	if !s.Holds {
		return nil
	}
	var received, sent int64
	for _, t := range g.tunnels.traffic(s.Peer) {
		received, sent = received+t.Received, sent+t.Sent
	}
	implementation := g.tunnels.plane.Implementation(api.TunnelInterface(0))
	connected := 0.0
	h, value := s.Connection(time.Now(), s.Report.Value, g.Ping)
	if value == netv1beta1.Connected {
		connected = 1
	}
	driver := daemon.Label("driver", "wireguard")
	labels := driver + "," + daemon.Label("cluster_id", g.RemoteClusterID)
	return []daemon.Metric{
		{Name: "liqo_peer_receive_bytes_total", Type: "counter", Help: "Bytes received from the peer.", Labels: labels,
			Value: float64(received)},
		{Name: "liqo_peer_transmit_bytes_total", Type: "counter", Help: "Bytes sent to the peer.", Labels: labels,
			Value: float64(sent)},
		{Name: "liqo_peer_latency_us", Type: "gauge", Help: "Round trip to the peer's gateway in microseconds.",
			Labels: labels, Value: float64(h.Latency.Microseconds())},
		g.trips.Metric(daemon.Metric{
			Name: "liqo_peer_latency_histogram_us", Help: "Round trips to the peer's gateway in microseconds.",
			Labels: labels,
		}),
		{Name: "liqo_peer_is_connected", Type: "gauge", Help: "1 while the peer's gateway answers, else 0.",
			Labels: labels, Value: connected},
		{Name: "liqo_peer_tunnel_info", Type: "gauge", Help: "1; the label says where WireGuard runs.",
			Labels: labels + "," + daemon.Label("implementation", implementation), Value: 1},
		{Name: "liqo_wireguard_implementation", Type: "gauge",
			Help:   "1; the original's name of liqo_peer_tunnel_info.",
			Labels: driver + "," + daemon.Label("implementation", implementation), Value: 1},
	}
}
