// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
)

// measuredResources bounds the resources of one Quota that have metrics: consumers choose the names.
const measuredResources = 16

// quotaLimits returns the metric with the bounds of consumers.
func quotaLimits() ctl.Registrar {
	return ctl.Gauges{
		Name: "liqo_quota_limit", Help: "Most that the pods of a ResourceSlice may request here.",
		Labels: quotaLabels(), Read: perQuota(func(q *offloadingv1beta1.QuotaSpec) corev1.ResourceList {
			return q.Resources
		}),
	}
}

// usage returns the metric with what pods hold of these bounds.
func (a *accounts) usage() ctl.Registrar {
	return ctl.Gauges{
		Name: "liqo_quota_used", Help: "What the pods of a ResourceSlice request here.",
		Labels: quotaLabels(), Read: perQuota(func(q *offloadingv1beta1.QuotaSpec) corev1.ResourceList {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.besides(entry{user: q.User}, &item{}).held
		}),
	}
}

func quotaLabels() []string { return []string{"cluster_id", "quota", "resource"} }

// perQuota returns an amount for each resource that a Quota bounds; a missing one is 0. It is in
// the units of kube-state-metrics: cores, bytes or a number.
func perQuota(
	amounts func(*offloadingv1beta1.QuotaSpec) corev1.ResourceList,
) func(context.Context, client.Reader) ([]ctl.Gauge, error) {
	return func(ctx context.Context, r client.Reader) (all []ctl.Gauge, err error) {
		var quotas offloadingv1beta1.QuotaList
		if err := r.List(ctx, &quotas); err != nil {
			return nil, fmt.Errorf("list Quotas: %w", err)
		}
		for i := range quotas.Items {
			q := &quotas.Items[i]
			list := amounts(&q.Spec)
			for _, name := range measured(q.Spec.Resources) {
				amount := list[name]
				labels := []string{q.Labels[api.LabelRemoteClusterID], q.Name, api.Printable(string(name))}
				all = append(all, ctl.Gauge{Value: amount.AsApproximateFloat64(), Labels: labels})
			}
		}
		return all, nil
	}
}

// measured returns the resources that have metrics, those of every node first.
func measured(bounded corev1.ResourceList) []corev1.ResourceName {
	usual := []corev1.ResourceName{
		corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage,
	}
	names := slices.Sorted(maps.Keys(bounded))
	slices.SortStableFunc(names, func(a, b corev1.ResourceName) int {
		return slices.Index(usual, b) - slices.Index(usual, a) // that of others is -1
	})
	return names[:min(len(names), measuredResources)]
}
