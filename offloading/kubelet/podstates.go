// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	pending     = "pending"
	terminating = "terminating"
)

// podCollector collects how many pods of the virtual node are in each state, and for how long the
// oldest has been in a state that should be short.
type podCollector struct {
	*Flags
	list func() ([]corev1.Pod, error)
}

// PodCollector returns the metrics of the virtual node's pods. It lists all of them at each scrape,
// until ctx ends.
func PodCollector(ctx context.Context, f *Flags, pods client.Reader) prometheus.Collector {
	return podCollector{f, func() ([]corev1.Pod, error) {
		ctx, cancel := context.WithTimeout(ctx, metricsTime)
		defer cancel()
		var list corev1.PodList
		err := pods.List(ctx, &list)
		return list.Items, err
	}}
}

// Describe implements prometheus.Collector.
func (p podCollector) Describe(to chan<- *prometheus.Desc) {
	to <- podCount()
	to <- podAge()
}

func podCount() *prometheus.Desc {
	return prometheus.NewDesc("liqo_virtual_kubelet_pods",
		"Pods of the virtual node by state: the phase in lower case, or terminating.",
		[]string{"cluster_id", "node_name", "state"}, nil)
}

func podAge() *prometheus.Desc {
	return prometheus.NewDesc("liqo_virtual_kubelet_oldest_pod_seconds",
		"How long the oldest pod of the virtual node is pending, or terminating beyond its grace period; 0 if none is.",
		[]string{"cluster_id", "node_name", "state"}, nil)
}

// Collect implements prometheus.Collector.
func (p podCollector) Collect(to chan<- prometheus.Metric) {
	pods, err := p.list()
	if err != nil {
		log.Log.V(1).Info("read pods for metrics", "node", p.NodeName, "error", err.Error())
		return
	}
	counts, oldest := podStates(pods, time.Now())
	send := func(desc *prometheus.Desc, state string, value float64) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value,
			p.ForeignClusterID, p.NodeName, state)
	}
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		send(podCount(), state, float64(counts[state]))
	}
	for _, state := range slices.Sorted(maps.Keys(oldest)) {
		send(podAge(), state, oldest[state].Seconds())
	}
}

// podStates returns the number of pods in each state, and the age of the oldest in those that
// should be short. A pending pod ages from the time at which it was bound to the node. Pods of
// DaemonSets that tolerate all taints wait here for ever, and do not count as pending.
func podStates(pods []corev1.Pod, now time.Time) (counts map[string]int, oldest map[string]time.Duration) {
	counts = map[string]int{pending: 0, "running": 0, "succeeded": 0, "failed": 0, terminating: 0}
	oldest = map[string]time.Duration{pending: 0, terminating: 0}
	for i := range pods {
		p := &pods[i]
		state, since := strings.ToLower(string(p.Status.Phase)), p.CreationTimestamp.Time
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
				since = c.LastTransitionTime.Time
			}
		}
		if p.DeletionTimestamp != nil {
			state, since = terminating, p.DeletionTimestamp.Time // the end of the grace period
		}
		if state == "" {
			state = pending
		}
		if state == pending && ofDaemonSet(p) {
			continue
		}
		counts[state]++
		if age, ages := oldest[state]; ages {
			oldest[state] = max(age, now.Sub(since))
		}
	}
	return counts, oldest
}

// ofDaemonSet reports whether a pod is pinned to its node by name, as pods of DaemonSets are.
func ofDaemonSet(p *corev1.Pod) bool {
	if p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil {
		return false
	}
	required := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	return required != nil && slices.ContainsFunc(required.NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(term.MatchFields, func(m corev1.NodeSelectorRequirement) bool {
			return m.Key == metav1.ObjectNameField && slices.Equal(m.Values, []string{p.Spec.NodeName})
		})
	})
}
