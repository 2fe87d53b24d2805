// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/liqo-go/liqo/internal/remote"
)

// measured returns a response of the provider's metrics API.
func measured(t *testing.T, items string) []podMetrics {
	t.Helper()
	var pods []podMetrics
	if err := json.Unmarshal([]byte(items), &pods); err != nil {
		t.Fatal(err)
	}
	return pods
}

// TestMetricsOfAnyVersion: a provider gets another metrics server, and one more. What served last is asked first.
func TestMetricsOfAnyVersion(t *testing.T) {
	t.Parallel()
	var served, asked []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		version := strings.Split(r.URL.Path, "/")[3]
		asked = append(asked, version)
		if !slices.Contains(served, version) {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, `{"items": [{"metadata": {"name": %q}}]}`, version)
	}))
	defer server.Close()
	text, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: "c",
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "rome", AuthInfo: "milan"}},
		Clusters: map[string]*clientcmdapi.Cluster{"rome": {
			Server:                   server.URL,
			CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"milan": {Token: "t"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	peer, err := remote.New(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{Options: Options{Flags: NewFlags(), Peer: peer}}
	for _, c := range []struct {
		served       []string
		asked, first string
	}{
		{[]string{"v1", "v1beta1"}, "v1", "v1"},
		{[]string{"v1beta1"}, "v1 v1beta1", "v1beta1"},
		{[]string{"v1beta1"}, "v1beta1", "v1beta1"},
		{nil, "v1beta1 v1", ""},
		{[]string{"v1"}, "v1beta1 v1", "v1"},
		{[]string{"v1"}, "v1", "v1"},
	} {
		served, asked = c.served, nil
		list, err := n.podMetrics(t.Context(), "demo-milan")
		first := ""
		if len(list) > 0 {
			first = list[0].Metadata.Name
		}
		if got := strings.Join(asked, " "); got != c.asked || first != c.first || (err == nil) != (c.first != "") {
			t.Errorf("with %v served: asked %s, got metrics of %q, error %v", c.served, got, first, err)
		}
	}
}

// TestMetricsAreWhatMetricsServerWants checks what metrics-server requires of a kubelet: two points
// of a container that started before the first, no value 0, and totals that never fall.
func TestMetricsAreWhatMetricsServerWants(t *testing.T) {
	t.Parallel()
	m := &meter{}
	start := time.Unix(1_800_000_000, 0)
	first := m.take(measured(t, `[
		{"metadata": {"name": "busy", "namespace": "shop"}, "timestamp": "2027-01-15T08:00:00Z", "window": "10s",
		 "containers": [{"name": "c", "usage": {"cpu": "500m", "memory": "10Mi"}}]},
		{"metadata": {"name": "idle", "namespace": "shop"}, "timestamp": "2027-01-15T08:00:00Z", "window": "10s",
		 "containers": [{"name": "c", "usage": {"cpu": "0", "memory": "1Mi"}}]}]`))
	want := `# HELP container_cpu_usage_seconds_total Cumulative cpu time consumed by the container in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="c",namespace="shop",pod="busy"} 5 1800000000000
container_cpu_usage_seconds_total{container="c",namespace="shop",pod="idle"} 0.001 1800000000000
# HELP container_memory_working_set_bytes Current working set of the container in bytes
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="c",namespace="shop",pod="busy"} 1.048576e+07 1800000000000
container_memory_working_set_bytes{container="c",namespace="shop",pod="idle"} 1.048576e+06 1800000000000
# HELP container_start_time_seconds Start time of the container since unix epoch in seconds
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="c",namespace="shop",pod="busy"} 1.79999999e+09 1800000000000
container_start_time_seconds{container="c",namespace="shop",pod="idle"} 1.79999999e+09 1800000000000
# HELP node_cpu_usage_seconds_total Cumulative cpu time consumed by the node in core-seconds
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 5.001 1800000000000
# HELP node_memory_working_set_bytes Current working set of the node in bytes
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 1.1534336e+07 1800000000000
# HELP scrape_error 1 if there was an error while getting container metrics, 0 otherwise
# TYPE scrape_error gauge
scrape_error 0
`
	if diff := cmp.Diff(want, exposition(first, start.Add(7*time.Second))); diff != "" {
		t.Errorf("first scrape, -want +got:\n%s", diff)
	}
	// The busy pod goes on for 20 s, the idle one is gone.
	second := m.take(measured(t, `[
		{"metadata": {"name": "busy", "namespace": "shop"}, "timestamp": "2027-01-15T08:00:20Z", "window": "20s",
		 "containers": [{"name": "c", "usage": {"cpu": "250m", "memory": "10Mi"}}]}]`))
	if s := second.samples[0]; s.coreSeconds != 10 || !s.start.Equal(start.Add(-10*time.Second)) {
		t.Errorf("the busy pod used %v s since %v; want 10 s since %v", s.coreSeconds, s.start, start.Add(-10*time.Second))
	}
	if total := second.total(start); total.coreSeconds != 10.001 || !total.at.Equal(start.Add(20*time.Second)) {
		t.Errorf("the node used %v s until %v; want 10.001", total.coreSeconds, total.at)
	}
	if total := m.take(nil).total(start); total.coreSeconds != 10.001 || !total.at.Equal(start) {
		t.Errorf("the empty node used %v s until %v; want 10.001, now", total.coreSeconds, total.at)
	}
}

// TestCadvisorMetricsNameContainersAsCadvisorDoes checks cAdvisor's labels, by which recording
// rules of Prometheus select containers, with an image that is not empty.
func TestCadvisorMetricsNameContainersAsCadvisorDoes(t *testing.T) {
	t.Parallel()
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "busy", UID: "u-1"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Image: "echo:1", ContainerID: "containerd://abc"}}
	m := (&meter{}).take(measured(t, `[{"metadata": {"name": "busy", "namespace": "shop"}, "timestamp": "2027-01-15T08:00:00Z",
		"window": "10s", "containers": [
			{"name": "c", "usage": {"cpu": "500m", "memory": "10Mi"}}, {"name": "gone", "usage": {"cpu": "0", "memory": "1Mi"}}]}]`))
	want := `# HELP container_cpu_usage_seconds_total Cumulative cpu time consumed by the container in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{cpu="total",container="c",id="/kubepods/podu-1/abc",image="echo:1",name="abc",namespace="shop",pod="busy"} 5 1800000000000
container_cpu_usage_seconds_total{cpu="total",container="gone",id="",image="",name="",namespace="shop",pod="busy"} 0.001 1800000000000
# HELP container_memory_working_set_bytes Current working set of the container in bytes
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="c",id="/kubepods/podu-1/abc",image="echo:1",name="abc",namespace="shop",pod="busy"} 1.048576e+07 1800000000000
container_memory_working_set_bytes{container="gone",id="",image="",name="",namespace="shop",pod="busy"} 1.048576e+06 1800000000000
# HELP container_start_time_seconds Start time of the container since unix epoch in seconds
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="c",id="/kubepods/podu-1/abc",image="echo:1",name="abc",namespace="shop",pod="busy"} 1.79999999e+09 1800000000000
container_start_time_seconds{container="gone",id="",image="",name="",namespace="shop",pod="busy"} 1.79999999e+09 1800000000000
# HELP container_memory_usage_bytes Current memory usage in bytes
# TYPE container_memory_usage_bytes gauge
container_memory_usage_bytes{container="c",id="/kubepods/podu-1/abc",image="echo:1",name="abc",namespace="shop",pod="busy"} 1.048576e+07 1800000000000
container_memory_usage_bytes{container="gone",id="",image="",name="",namespace="shop",pod="busy"} 1.048576e+06 1800000000000
# HELP container_scrape_error 1 if there was an error while getting container metrics, 0 otherwise
# TYPE container_scrape_error gauge
container_scrape_error 0
`
	if diff := cmp.Diff(want, cadvisor(m, []corev1.Pod{pod})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestMetricsStayReadableWhateverTheProviderWrites escapes what the provider writes: image and ID
// of a container, and names in its metrics API. The text format of Prometheus has the escapes \\,
// \" and \n only; any other would make the whole page unreadable.
func TestMetricsStayReadableWhateverTheProviderWrites(t *testing.T) {
	t.Parallel()
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "busy", UID: "u-1"}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "c", Image: "echo:\x1b[31m\"\\\u202e\xff", ContainerID: "containerd://a\tb\nc\"} 1",
	}}
	m := (&meter{}).take(measured(t, `[{"metadata": {"name": "busy", "namespace": "shop"},
		"timestamp": "2027-01-15T08:00:00Z", "window": "10s", "containers": [
			{"name": "c", "usage": {"cpu": "1", "memory": "1Mi"}},
			{"name": "d\u001b", "usage": {"cpu": "1", "memory": "1Mi"}}]}]`))
	page := cadvisor(m, []corev1.Pod{pod})
	for _, text := range []string{page, exposition(m, time.Unix(1_800_000_000, 0))} {
		if _, err := promlint.New(strings.NewReader(text)).Lint(); err != nil {
			t.Errorf("parse: %v in\n%s", err, text)
		}
	}
	want := `container_memory_usage_bytes{container="c",id="/kubepods/podu-1/a\\tb\\nc\"} 1",` +
		`image="echo:\\x1b[31m\"\\\\u202e\\xff",name="a\\tb\\nc\"} 1",namespace="shop",pod="busy"} `
	if !strings.Contains(page, want) {
		t.Errorf("want %s in\n%s", want, page)
	}
}
