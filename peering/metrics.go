// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/desired"
)

// peerInfo returns the metric with the peers and their roles.
func peerInfo() ctl.Registrar {
	return ctl.Gauges{
		Name: "liqo_peer_info", Help: "1 for each peer; the label has its role.",
		Labels: []string{"cluster_id", "role"},
		Read: perPeer(func(fc *corev1beta1.ForeignCluster) []ctl.Gauge {
			return []ctl.Gauge{{Value: 1, Labels: []string{fc.Spec.ClusterID, string(fc.Status.Role)}}}
		}),
	}
}

// peerConditions returns the metric with the conditions of ForeignClusters.
func peerConditions() ctl.Registrar {
	return ctl.Gauges{
		Name:   "liqo_peer_condition",
		Help:   "1 while a condition of the peer's ForeignCluster is as it should be, else 0.",
		Labels: []string{"cluster_id", "module", "condition"}, Read: perPeer(conditionsOf),
	}
}

// conditionsOf returns the conditions that are true while all is well. The module "all" holds the
// conditions of the peer as a whole.
func conditionsOf(fc *corev1beta1.ForeignCluster) (out []ctl.Gauge) {
	add := func(module string, conditions []corev1beta1.Condition) {
		for _, c := range conditions {
			value := 0.0
			switch c.Status {
			case corev1beta1.ConditionReady, corev1beta1.ConditionEstablished,
				corev1beta1.ConditionStatus(metav1.ConditionTrue):
				value = 1
			}
			out = append(out, ctl.Gauge{Value: value, Labels: []string{fc.Spec.ClusterID, module, string(c.Type)}})
		}
	}
	for _, c := range fc.Status.Conditions {
		if c.Type != desired.ConditionReconciling && c.Type != desired.ConditionStalled {
			add("all", []corev1beta1.Condition{c})
		}
	}
	if m := fc.Status.Modules; m != nil {
		add("networking", m.Networking.Conditions)
		add("authentication", m.Authentication.Conditions)
		add("offloading", m.Offloading.Conditions)
	}
	return out
}

// perPeer returns the values of all ForeignClusters.
func perPeer(
	values func(*corev1beta1.ForeignCluster) []ctl.Gauge,
) func(context.Context, client.Reader) ([]ctl.Gauge, error) {
	return func(ctx context.Context, r client.Reader) (all []ctl.Gauge, err error) {
		var peers corev1beta1.ForeignClusterList
		if err := r.List(ctx, &peers); err != nil {
			return nil, fmt.Errorf("list ForeignClusters: %w", err)
		}
		for i := range peers.Items {
			all = append(all, values(&peers.Items[i])...)
		}
		return all, nil
	}
}
