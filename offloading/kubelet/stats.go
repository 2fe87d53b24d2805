// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// metricsTime bounds one question to the provider's metrics API.
const metricsTime = 5 * time.Second

// podMetrics is what the metrics API (metrics.k8s.io/v1beta1) says about a pod.
type podMetrics struct {
	Metadata struct {
		Name string `json:"name"`
		// Namespace is the home one once read.
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Timestamp metav1.Time `json:"timestamp"`
	// Window is the time before Timestamp that the rates are of.
	Window     metav1.Duration `json:"window"`
	Containers []struct {
		Name  string `json:"name"`
		Usage struct {
			CPU    resource.Quantity `json:"cpu"`
			Memory resource.Quantity `json:"memory"`
		} `json:"usage"`
	} `json:"containers"`
}

// leastSeconds is the CPU time of a container at first sight, if none was measured: it has used
// some to start. metrics-server takes 0 for not measured, and then leaves out the whole pod.
const leastSeconds = 0.001

// sample is the state of one container. The metrics API gives rates only, home wants totals: CPU
// is the sum of rate times time from the window in which the container was seen first.
type sample struct {
	namespace, pod, container string
	at, start                 time.Time
	// cores is the rate, coreSeconds the total, memory the working set in bytes.
	cores, coreSeconds float64
	memory             uint64
}

type sampleKey struct{ namespace, pod, container string }

// measurement is the state of all containers of the node.
type measurement struct {
	samples []sample
	// gone is the CPU time in seconds of containers that are no more: the node's total never falls.
	gone float64
}

// total adds up the node's use, at the time of the newest sample: while the provider measures
// nothing new, nobody may take the time that passes for idle.
func (m measurement) total(now time.Time) sample {
	all := sample{coreSeconds: m.gone}
	for _, s := range m.samples {
		all.cores, all.coreSeconds, all.memory = all.cores+s.cores, all.coreSeconds+s.coreSeconds, all.memory+s.memory
		if s.at.After(all.at) {
			all.at = s.at
		}
	}
	if len(m.samples) == 0 {
		all.at = now
	}
	return all
}

// meter sums up CPU time over the life of the process.
type meter struct {
	mu      sync.Mutex
	samples map[sampleKey]sample
	gone    float64
}

// take notes what was measured and forgets containers that are gone.
func (m *meter) take(pods []podMetrics) measurement {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := map[sampleKey]sample{}
	for _, p := range pods {
		for _, c := range p.Containers {
			key := sampleKey{p.Metadata.Namespace, p.Metadata.Name, c.Name}
			s := sample{
				namespace: key.namespace, pod: key.pod, container: key.container,
				at: p.Timestamp.Time, start: p.Timestamp.Add(-p.Window.Duration),
				cores: c.Usage.CPU.AsApproximateFloat64(), memory: uint64(max(c.Usage.Memory.Value(), 0)),
			}
			s.coreSeconds = max(s.cores*p.Window.Seconds(), leastSeconds)
			if before, ok := m.samples[key]; ok {
				s.start = before.start
				s.coreSeconds = before.coreSeconds + s.cores*max(s.at.Sub(before.at).Seconds(), 0)
			}
			next[key] = s
		}
	}
	for key, before := range m.samples {
		if _, stays := next[key]; !stays {
			m.gone += before.coreSeconds
		}
	}
	m.samples = next
	return measurement{gone: m.gone, samples: slices.SortedFunc(maps.Values(next), func(a, b sample) int {
		return strings.Compare(a.namespace+"\x00"+a.pod+"\x00"+a.container, b.namespace+"\x00"+b.pod+"\x00"+b.container)
	})}
}

// measure asks the provider about this node's pods. Namespaces it says nothing about are left out.
func (n *node) measure(ctx context.Context) measurement {
	ctx, cancel := context.WithTimeout(ctx, metricsTime)
	defer cancel()
	key := types.NamespacedName{Namespace: n.Flags.TenantNamespace, Name: n.Flags.ForeignClusterID}
	m, err := get(ctx, n.cache, key, &offloadingv1beta1.NamespaceMap{})
	if err != nil || m == nil {
		return n.meter.take(nil)
	}
	var pods []podMetrics
	for home, entry := range m.Status.CurrentMapping {
		if entry.Phase != offloadingv1beta1.NamespaceAccepted {
			continue
		}
		list, err := n.podMetrics(ctx, entry.RemoteNamespace)
		if err != nil {
			log.FromContext(ctx).V(1).Info("no metrics", "namespace", home, "error", err.Error())
			continue
		}
		for _, p := range list {
			p.Metadata.Namespace = home
			pods = append(pods, p)
		}
	}
	return n.meter.take(pods)
}

func (n *node) podMetrics(ctx context.Context, namespace string) ([]podMetrics, error) {
	selector := url.Values{"labelSelector": {api.LabelNodeName + "=" + n.Flags.NodeName}}
	address := n.Peer.Config().Host + "/apis/metrics.k8s.io/v1beta1/namespaces/" + namespace + "/pods?" + selector.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for metrics: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := n.Peer.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("ask for metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask for metrics: %s", resp.Status)
	}
	var list struct {
		Items []podMetrics `json:"items"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("decode metrics: %w", err)
	}
	return list.Items, nil
}

// summary answers /stats/summary.
func (n *node) summary(w http.ResponseWriter, r *http.Request) {
	out := summaryOf(n.Flags.NodeName, n.measure(r.Context()), time.Now())
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(out); err != nil {
		log.FromContext(r.Context()).V(1).Info("write summary", "error", err.Error())
	}
}

func summaryOf(node string, m measurement, now time.Time) stats.Summary {
	out := stats.Summary{Node: stats.NodeStats{NodeName: node}}
	for _, s := range m.samples {
		last := len(out.Pods) - 1
		if last < 0 || out.Pods[last].PodRef.Name != s.pod || out.Pods[last].PodRef.Namespace != s.namespace {
			out.Pods = append(out.Pods, stats.PodStats{
				PodRef: stats.PodReference{Name: s.pod, Namespace: s.namespace}, StartTime: metav1.NewTime(s.start),
			})
			last++
		}
		cpu, memory := usageOf(s)
		out.Pods[last].Containers = append(out.Pods[last].Containers,
			stats.ContainerStats{Name: s.container, StartTime: metav1.NewTime(s.start), CPU: cpu, Memory: memory})
	}
	for i := range out.Pods {
		p := &out.Pods[i]
		p.CPU, p.Memory = usageOf(measurement{samples: ofPod(m.samples, p.PodRef)}.total(now))
	}
	out.Node.CPU, out.Node.Memory = usageOf(m.total(now))
	return out
}

func ofPod(samples []sample, ref stats.PodReference) []sample {
	var out []sample
	for _, s := range samples {
		if s.pod == ref.Name && s.namespace == ref.Namespace {
			out = append(out, s)
		}
	}
	return out
}

func usageOf(s sample) (*stats.CPUStats, *stats.MemoryStats) {
	t := metav1.NewTime(s.at)
	return &stats.CPUStats{Time: t, UsageNanoCores: new(uint64(s.cores * 1e9)), UsageCoreNanoSeconds: new(uint64(s.coreSeconds * 1e9))},
		&stats.MemoryStats{Time: t, WorkingSetBytes: new(s.memory), UsageBytes: new(s.memory)}
}

// resourceMetrics answers /metrics/resource, which metrics-server reads.
func (n *node) resourceMetrics(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	if _, err := io.WriteString(w, exposition(n.measure(r.Context()), time.Now())); err != nil {
		log.FromContext(r.Context()).V(1).Info("write metrics", "error", err.Error())
	}
}

// exposition writes the metrics kubelets offer (KEP-727) in the text format of Prometheus.
func exposition(m measurement, now time.Time) string {
	samples := m.samples
	var b strings.Builder
	family := func(name, kind, help string) { fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind) }
	line := func(name, labels string, value float64, at time.Time) {
		fmt.Fprintf(&b, "%s%s %g %d\n", name, labels, value, at.UnixMilli())
	}
	container := func(s sample) string {
		return fmt.Sprintf("{container=%q,namespace=%q,pod=%q}", s.container, s.namespace, s.pod)
	}
	family("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the container in core-seconds")
	for _, s := range samples {
		line("container_cpu_usage_seconds_total", container(s), s.coreSeconds, s.at)
	}
	family("container_memory_working_set_bytes", "gauge", "Current working set of the container in bytes")
	for _, s := range samples {
		line("container_memory_working_set_bytes", container(s), float64(s.memory), s.at)
	}
	family("container_start_time_seconds", "gauge", "Start time of the container since unix epoch in seconds")
	for _, s := range samples {
		line("container_start_time_seconds", container(s), float64(s.start.Unix()), s.at)
	}
	total := m.total(now)
	family("node_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the node in core-seconds")
	line("node_cpu_usage_seconds_total", "", total.coreSeconds, total.at)
	family("node_memory_working_set_bytes", "gauge", "Current working set of the node in bytes")
	line("node_memory_working_set_bytes", "", float64(total.memory), total.at)
	family("scrape_error", "gauge", "1 if there was an error while getting container metrics, 0 otherwise")
	b.WriteString("scrape_error 0\n")
	return b.String()
}
