// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/metrics"
)

// metricsTime limits one query of the provider's metrics API.
const metricsTime = 5 * time.Second

// podMetrics holds the metrics of a pod from the metrics API. Its versions v1 (Kubernetes 1.37) and
// v1beta1 have the same fields (k8s.io/metrics).
type podMetrics struct {
	Metadata struct {
		Name string `json:"name"`
		// Namespace is replaced by the local one.
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Timestamp metav1.Time `json:"timestamp"`
	// Window is the duration before Timestamp over which the rates are averaged.
	Window     metav1.Duration `json:"window"`
	Containers []struct {
		Name  string `json:"name"`
		Usage struct {
			CPU    resource.Quantity `json:"cpu"`
			Memory resource.Quantity `json:"memory"`
		} `json:"usage"`
	} `json:"containers"`
}

// leastSeconds is the CPU time of a new container if 0 was measured, because it has used some to
// start. metrics-server takes 0 for a missing value, and leaves out the whole pod.
const leastSeconds = 0.001

// sample holds the state of one container. The metrics API returns rates only, and the summary
// needs totals: CPU time is the sum of rate times duration, from the window in which the container
// appeared.
type sample struct {
	sampleKey
	at, start time.Time
	// cores is the rate, coreSeconds the total, memory the working set in bytes.
	cores, coreSeconds float64
	memory             uint64
}

type sampleKey struct{ namespace, pod, container string }

// measurement is the state of all containers of the node.
type measurement struct {
	samples []sample
	// gone is the CPU time in seconds of deleted containers, so that the node's total never falls.
	gone float64
}

// total returns the sum of all containers, at the time of the newest sample. With the current time,
// an interval without new samples would look idle.
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

// take adds a measurement, and removes deleted containers.
func (m *meter) take(pods []podMetrics) measurement {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := map[sampleKey]sample{}
	for _, p := range pods {
		for _, c := range p.Containers {
			key := sampleKey{p.Metadata.Namespace, p.Metadata.Name, c.Name}
			s := sample{
				sampleKey: key, at: p.Timestamp.Time, start: p.Timestamp.Add(-p.Window.Duration),
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
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.pod, b.pod),
			cmp.Compare(a.container, b.container))
	})}
}

// measure queries the provider's metrics of this node's pods. It leaves out namespaces without a
// response.
func (n *node) measure(ctx context.Context) measurement {
	ctx, cancel := context.WithTimeout(ctx, metricsTime)
	defer cancel()
	m, err := n.namespaceMap(ctx)
	if err != nil || m == nil {
		return n.meter.take(nil)
	}
	var pods []podMetrics
	for local, entry := range m.Status.CurrentMapping {
		if entry.Phase != offloadingv1beta1.NamespaceAccepted {
			continue
		}
		list, err := n.podMetrics(ctx, entry.RemoteNamespace)
		if err != nil {
			log.FromContext(ctx).V(1).Info("no metrics", "namespace", local, "error", err.Error())
			continue
		}
		for _, p := range list {
			p.Metadata.Namespace = local
			pods = append(pods, p)
		}
	}
	return n.meter.take(pods)
}

// errNotServed reports that the provider does not serve a version of the metrics API.
var errNotServed = errors.New("ask for metrics: not served")

// podMetrics queries the metrics of a remote namespace in the version that served the last query,
// first v1, and in the other one if that is not served.
func (n *node) podMetrics(ctx context.Context, namespace string) ([]podMetrics, error) {
	beta := n.betaMetrics.Load()
	list, err := n.podMetricsIn(ctx, namespace, beta)
	if errors.Is(err, errNotServed) {
		if list, err = n.podMetricsIn(ctx, namespace, !beta); err == nil {
			n.betaMetrics.Store(!beta)
		}
	}
	return list, err
}

func (n *node) podMetricsIn(ctx context.Context, namespace string, beta bool) ([]podMetrics, error) {
	selector := url.Values{"labelSelector": {api.LabelNodeName + "=" + n.Flags.NodeName}}
	version := "v1"
	if beta {
		version = "v1beta1"
	}
	address := n.Peer.Config().Host + "/apis/metrics.k8s.io/" + version + "/namespaces/" + namespace + "/pods?" +
		selector.Encode()
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
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, errNotServed
	default:
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

// summary serves /stats/summary.
func (n *node) summary(w http.ResponseWriter, r *http.Request) {
	writeJSON(w, r, summaryOf(n.Flags.NodeName, n.measure(r.Context()), time.Now()))
}

func writeJSON(w http.ResponseWriter, r *http.Request, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		log.FromContext(r.Context()).V(1).Info("write answer", "path", r.URL.Path, "error", err.Error())
	}
}

func summaryOf(node string, m measurement, now time.Time) stats.Summary {
	out := stats.Summary{Node: stats.NodeStats{NodeName: node}}
	out.Node.CPU, out.Node.Memory = usageOf(m.total(now))
	byPod := map[stats.PodReference][]sample{}
	for _, s := range m.samples {
		ref := stats.PodReference{Name: s.pod, Namespace: s.namespace}
		if byPod[ref] == nil {
			out.Pods = append(out.Pods, stats.PodStats{PodRef: ref, StartTime: metav1.NewTime(s.start)})
		}
		byPod[ref] = append(byPod[ref], s)
	}
	for i := range out.Pods {
		p := &out.Pods[i]
		p.CPU, p.Memory = usageOf(measurement{samples: byPod[p.PodRef]}.total(now))
		for _, s := range byPod[p.PodRef] {
			cpu, memory := usageOf(s)
			p.Containers = append(p.Containers,
				stats.ContainerStats{Name: s.container, StartTime: metav1.NewTime(s.start), CPU: cpu, Memory: memory})
		}
	}
	return out
}

func usageOf(s sample) (*stats.CPUStats, *stats.MemoryStats) {
	t := metav1.NewTime(s.at)
	return &stats.CPUStats{Time: t, UsageNanoCores: new(uint64(s.cores * 1e9)),
			UsageCoreNanoSeconds: new(uint64(s.coreSeconds * 1e9))},
		&stats.MemoryStats{Time: t, WorkingSetBytes: new(s.memory), UsageBytes: new(s.memory)}
}

// resourceMetrics serves /metrics/resource, which metrics-server reads.
func (n *node) resourceMetrics(w http.ResponseWriter, r *http.Request) {
	writePage(w, r, exposition(n.measure(r.Context()), time.Now()))
}

func writePage(w http.ResponseWriter, r *http.Request, text string) {
	w.Header().Set("Content-Type", metrics.ContentType)
	if _, err := io.WriteString(w, text); err != nil {
		log.FromContext(r.Context()).V(1).Info("write metrics", "error", err.Error())
	}
}

// exposition returns the resource metrics of kubelets (KEP-727) in the text format of Prometheus.
func exposition(m measurement, now time.Time) string {
	var b metrics.Page
	containers(&b, m.samples, "", func(s sample) string {
		return metrics.Labels("container", s.container, "namespace", s.namespace, "pod", s.pod)
	})
	total := m.total(now)
	b.Family("node_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed by the node in core-seconds")
	b.SampleAt("node_cpu_usage_seconds_total", "", total.coreSeconds, total.at)
	b.Family("node_memory_working_set_bytes", "gauge", "Current working set of the node in bytes")
	b.SampleAt("node_memory_working_set_bytes", "", float64(total.memory), total.at)
	b.Family("scrape_error", "gauge", "1 if there was an error while getting container metrics, 0 otherwise")
	b.Sample("scrape_error", "", 0)
	return b.String()
}

// containers writes the metrics of each container. cpu is a further label of its CPU time.
func containers(p *metrics.Page, samples []sample, cpu string, labels func(sample) string) {
	p.Family("container_cpu_usage_seconds_total", "counter",
		"Cumulative cpu time consumed by the container in core-seconds")
	for _, s := range samples {
		p.SampleAt("container_cpu_usage_seconds_total", cpu+labels(s), s.coreSeconds, s.at)
	}
	gauge(p, samples, labels, "container_memory_working_set_bytes", "Current working set of the container in bytes",
		func(s sample) float64 { return float64(s.memory) })
	gauge(p, samples, labels, "container_start_time_seconds", "Start time of the container since unix epoch in seconds",
		func(s sample) float64 { return float64(s.start.Unix()) })
}

// gauge writes a metric with one value for each container.
func gauge(p *metrics.Page, samples []sample, labels func(sample) string, name, help string,
	value func(sample) float64) {
	p.Family(name, "gauge", help)
	for _, s := range samples {
		p.SampleAt(name, labels(s), value(s), s.at)
	}
}

// cadvisorMetrics serves /metrics/cadvisor from the provider's metrics API.
func (n *node) cadvisorMetrics(w http.ResponseWriter, r *http.Request) {
	pods, err := n.cachedPods(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writePage(w, r, cadvisor(n.measure(r.Context()), pods))
}

// cadvisor returns metrics with the names and labels of cAdvisor. For a container that has just
// ended only the names are known. Its label image is empty, as cAdvisor sets it for cgroups other
// than containers.
func cadvisor(m measurement, pods []corev1.Pod) string {
	type identity struct{ path, image, name string }
	known := map[sampleKey]identity{}
	for i := range pods {
		p := &pods[i]
		for _, c := range containerStatuses(p) {
			_, id, _ := strings.Cut(c.ContainerID, "://")
			path := fmt.Sprintf("/kubepods/pod%s/%s", p.UID, id)
			known[sampleKey{p.Namespace, p.Name, c.Name}] = identity{path, c.Image, id}
		}
	}
	labels := func(s sample) string {
		c := known[s.sampleKey]
		return metrics.Labels("container", s.container, "id", c.path, "image", c.image, "name", c.name,
			"namespace", s.namespace, "pod", s.pod)
	}
	var b metrics.Page
	containers(&b, m.samples, `cpu="total",`, labels)
	gauge(&b, m.samples, labels, "container_memory_usage_bytes", "Current memory usage in bytes",
		func(s sample) float64 { return float64(s.memory) })
	b.Family("container_scrape_error", "gauge", "1 if there was an error while getting container metrics, 0 otherwise")
	b.Sample("container_scrape_error", "", 0)
	return b.String()
}

// probeMetrics serves /metrics/probes. It is empty, because the provider's kubelets run the probes.
func probeMetrics(w http.ResponseWriter, r *http.Request) { writePage(w, r, "") }

// checkMetrics serves /metrics/slis: a kubelet that responds is healthy.
func checkMetrics(w http.ResponseWriter, r *http.Request) {
	var b metrics.Page
	b.Family("kubernetes_healthcheck", "gauge", "This metric records the result of a single healthcheck.")
	for _, check := range healthChecks {
		b.Sample("kubernetes_healthcheck", metrics.Labels("name", check, "type", "healthz"), 1)
	}
	writePage(w, r, b.String())
}
