// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
)

// Traffic holds how many bytes a second came from a peer through the tunnel, and went there.
type Traffic struct{ Received, Sent float64 }

// String returns both as text, such as "1.2 MB/s received, 80 kB/s sent".
func (t Traffic) String() string { return rate(t.Received) + " received, " + rate(t.Sent) + " sent" }

// rate returns bytes a second with at most one decimal.
func rate(bytes float64) string {
	unit := 0
	units := []string{"B/s", "kB/s", "MB/s", "GB/s", "TB/s"}
	for bytes >= 999.95 && unit < len(units)-1 { // 999.95 would be shown as 1000.0
		bytes, unit = bytes/1000, unit+1
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", bytes), ".0") + " " + units[unit]
}

// trafficOf returns the rates of a peer; nil if they are not known.
func (s *Snapshot) trafficOf(peer string) *Traffic {
	if t, known := s.Traffic[peer]; known {
		return &t
	}
	return nil
}

// Gateways returns the active gateway pods: in the namespace of a GatewayServer or GatewayClient, and with its peer as
// label. Labels alone do not tell: pods that run here for a consumer keep those that the consumer has set.
func (s *Snapshot) Gateways() []corev1.Pod {
	served := map[[2]string]bool{}
	add := func(gateway metav1.Object) {
		served[[2]string{gateway.GetNamespace(), gateway.GetLabels()[api.LabelRemoteClusterID]}] = true
	}
	for i := range s.Servers.Items {
		add(&s.Servers.Items[i])
	}
	for i := range s.Clients.Items {
		add(&s.Clients.Items[i])
	}
	var out []corev1.Pod
	for i := range s.Pods.Items {
		pod := &s.Pods.Items[i]
		if peer := pod.Labels[api.LabelRemoteClusterID]; peer != "" && served[[2]string{pod.Namespace, peer}] &&
			pod.Labels[api.LabelNetworkingComponent] == api.GatewayComponent &&
			pod.Labels[api.LabelGatewayActive] == api.True {
			out = append(out, *pod)
		}
	}
	return out
}

// MetricsPort returns the port of a gateway pod's metrics; 0 if metrics are off.
func MetricsPort(pod *corev1.Pod) int32 {
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			if port.Name == "gw-metrics" {
				return port.ContainerPort
			}
		}
	}
	return 0
}

// MetricsOff says that gateways serve no metrics, and how a user who calls liqoctl by command changes that.
func MetricsOff(command string) string {
	return fmt.Sprintf("metrics are off; '%s install --enable-metrics' turns them on", command)
}

// unmetered says, by peer, why the rates of its tunnel are not known: its gateways serve no metrics.
func (s *Snapshot) unmetered() map[string]string {
	out := map[string]string{}
	gateways := s.Gateways()
	for i := range gateways {
		if MetricsPort(&gateways[i]) == 0 {
			out[gateways[i].Labels[api.LabelRemoteClusterID]] = MetricsOff(s.Command)
		}
	}
	return out
}
