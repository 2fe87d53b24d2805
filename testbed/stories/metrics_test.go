// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/liqo-go/liqo/internal/patience"
)

// TestMetrics runs the Prometheus that `make test-metrics` builds on both clusters.
func TestMetrics(t *testing.T) {
	beginNew(t)
	tellAll(t, []story{
		{"install", func(t *testing.T) { installWith(t, "metrics.enabled=true") }},
		{"peer", peerSmall},
		{"a namespace is offloaded", offloadNamespace},
		{"the dashboard and an archive have the traffic", trafficIsShown},
		{"run Prometheus", runPrometheus},
		{"every query of every panel gives data", panelsGiveData},
		{"labels are as documented", labelsAsDocumented},
		{"what a scrape costs", scrapeCosts},
		{"a tunnel is down", tunnelAlert},
		{"a quota is exhausted", quotaAlert},
		{"pods are stuck at a provider", stuckAlert},
	})
}

// peerSmall asks for so little that one pod exhausts it.
func peerSmall(t *testing.T) {
	rome.must(t, "peer", "--remote-kubeconfig", milan.kubeconfig, "--gw-server-service-type", "NodePort", "--cpu", "500m")
	peeringIsShown(t)
}

// trafficIsShown: an open map has the throughput of the tunnel, and an archive the counters of its gateway.
func trafficIsShown(t *testing.T) {
	s := newScreen(t)
	s.open(t, rome)
	s.do(t, s.Await(patience.Limit, "#peer-milan", "B/s received"))
	b := gathered(t)
	files := b.Files("local/metrics")
	if !slices.ContainsFunc(files, func(name string) bool {
		return bytes.Contains(b.Text(name), []byte("\nliqo_peer_receive_bytes_total{"))
	}) {
		t.Errorf("no counters of the tunnel in %q", files)
	}
}

// prometheusImage is one of testbed/applications.
const prometheusImage = "docker.io/prom/prometheus:v3.16.0"

// prometheus runs Prometheus with the rights that docs/monitoring.md asks for.
const prometheus = `
apiVersion: v1
kind: Namespace
metadata: {name: monitoring}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: prometheus}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: prometheus}
subjects: [{kind: ServiceAccount, name: default, namespace: monitoring}]
---
apiVersion: v1
kind: Pod
metadata: {name: prometheus, namespace: monitoring}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: prometheus
    image: %s
    imagePullPolicy: Never
    args: [--config.file=/etc/prometheus/prometheus.yaml, --storage.tsdb.path=/data]
    readinessProbe: {httpGet: {path: /-/ready, port: 9090}, periodSeconds: 1}
    volumeMounts: [{name: config, mountPath: /etc/prometheus}, {name: data, mountPath: /data}]
  volumes: [{name: config, configMap: {name: prometheus}}, {name: data, emptyDir: {}}]
`

// runPrometheus configures it as docs/monitoring.md says, in a shorter time.
func runPrometheus(t *testing.T) {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	name := strings.NewReplacer("/", "_", ":", "_").Replace(prometheusImage)
	onTestbed(t, "load", filepath.Join(cache, "liqo-testbed", "applications", name, "image.tar"))
	folder := t.TempDir()
	files := map[string]string{"prometheus.yaml": scrapeConfig(t), "liqo-alerts.yaml": hastyAlerts(t)}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	both(func(c cluster) {
		c.apply(t, fmt.Sprintf(prometheus, prometheusImage))
		c.kubectl(t, "-n", "monitoring", "create", "configmap", "prometheus", "--from-file", folder)
	})
	for _, c := range []cluster{rome, milan} {
		c.kubectl(t, "-n", "monitoring", "wait", "pod/prometheus", "--for=condition=Ready", patiently)
	}
}

// scrapeConfig is the one that docs/monitoring.md shows in parts, scraping every two seconds.
func scrapeConfig(t *testing.T) string {
	t.Helper()
	config := ""
	for _, part := range regexp.MustCompile("(?s)```yml\n(.+?)```\n").FindAllStringSubmatch(readFile(t, "docs/monitoring.md"), -1) {
		config += part[1]
	}
	if !strings.Contains(config, " 30s") || !strings.Contains(config, "metric_relabel_configs:") {
		t.Fatal("docs/monitoring.md shows no configuration of Prometheus")
	}
	return strings.ReplaceAll(config, " 30s", " 2s")
}

// hastyAlerts are those of the chart with short times. promtool tests the long ones.
func hastyAlerts(t *testing.T) string {
	t.Helper()
	rules := regexp.MustCompile(`for: \d+m`).ReplaceAllString(readFile(t, "deploy/liqo/files/alerts.yaml"), "for: 4s")
	return strings.ReplaceAll(rules, "> 600", "> 10")
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// sample is one result of a query: labels, and a time with the value.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

// query asks the Prometheus of a cluster.
func (c cluster) query(query string) ([]sample, error) {
	var answer struct {
		Data struct{ Result []sample }
	}
	err := c.read("/api/v1/namespaces/monitoring/pods/prometheus:9090/proxy/api/v1/query?query="+url.QueryEscape(query), &answer)
	return answer.Data.Result, err
}

// isNumber tells a value from NaN, which a quotient of nothing is.
func (s sample) isNumber() bool {
	text, _ := s.Value[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	return err == nil && !math.IsNaN(v)
}

// panelsGiveData reads the dashboards where Grafana's sidecar does, and asks what Grafana would.
func panelsGiveData(t *testing.T) {
	var list struct {
		Items []struct{ Data map[string]string }
	}
	if err := rome.read("/api/v1/configmaps?labelSelector=grafana_dashboard%3D1", &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 5 {
		t.Fatalf("%d dashboards, want 5", len(list.Items))
	}
	variables := strings.NewReplacer("$peer", ".*", "$__rate_interval", "20s")
	for _, item := range list.Items {
		for file, text := range item.Data {
			var board struct {
				Panels []struct {
					Title   string
					Targets []struct{ Expr string }
				}
			}
			if err := json.Unmarshal([]byte(text), &board); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			for _, panel := range board.Panels {
				for _, target := range panel.Targets {
					givesData(t, file+", "+panel.Title, variables.Replace(target.Expr))
				}
			}
		}
	}
}

// givesData waits until one of the clusters has data: consumer and provider measure different things.
func givesData(t *testing.T, what, query string) {
	t.Helper()
	eventually(t, what+": "+query, func() (string, bool) {
		says := ""
		for _, c := range []cluster{rome, milan} {
			samples, err := c.query(query)
			if slices.ContainsFunc(samples, sample.isNumber) {
				return "", true
			}
			says += fmt.Sprintf("%s: %v %v\n", c.name, samples, err)
		}
		return says, false
	})
}

// labelsAsDocumented compares the labels of our metrics with those in docs/reference/metrics.md.
func labelsAsDocumented(t *testing.T) {
	documented := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `(liqo_\\w+)` \\| \\w+ \\| [^|]+ \\| ([^|]*) \\|")
	for _, match := range row.FindAllStringSubmatch(readFile(t, "docs/reference/metrics.md"), -1) {
		documented[match[1]] = strings.TrimSpace(strings.ReplaceAll(match[2], "`", ""))
	}
	seen := map[string]bool{}
	for _, c := range []cluster{rome, milan} {
		samples, err := c.query(`{__name__=~"liqo_.+"}`)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range samples {
			name := s.Metric["__name__"]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, suffix)
			}
			if _, own := s.Metric["exported_namespace"]; own { // that of the pod has the name
				s.Metric["namespace of the object"] = ""
			}
			for _, target := range []string{"__name__", "job", "instance", "namespace", "pod", "exported_namespace"} {
				delete(s.Metric, target)
			}
			want := strings.Split(strings.Replace(documented[name], "namespace", "namespace of the object", 1), ", ")
			for _, label := range slices.Sorted(maps.Keys(s.Metric)) {
				if !slices.Contains(want, label) {
					t.Errorf("%s: %s has the label %q, documented are %v", c.name, name, label, want)
				}
			}
			seen[name] = true
		}
	}
	for name := range documented {
		if !seen[name] && name != "liqo_virtual_kubelet_reflection_error_counter" { // there may have been none
			t.Errorf("%s has no series", name)
		}
	}
}

// scrapeCosts prints the figures of docs/monitoring.md, and no target is down.
func scrapeCosts(t *testing.T) {
	for _, c := range []cluster{rome, milan} {
		for _, of := range []string{"up", "scrape_samples_scraped", "scrape_samples_post_metric_relabeling", "scrape_duration_seconds"} {
			samples, err := c.query(of)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range samples {
				t.Logf("%s: %s of %s: %v", c.name, of, s.Metric["pod"], s.Value[1])
				if of == "up" && s.Value[1] != "1" {
					t.Errorf("%s: pod %s cannot be scraped", c.name, s.Metric["pod"])
				}
			}
		}
	}
}

// fires waits until an alert of a cluster fires, and ends waits until it does not.
func (c cluster) fires(t *testing.T, alert string) { c.alert(t, alert, true) }
func (c cluster) ends(t *testing.T, alert string)  { c.alert(t, alert, false) }

func (c cluster) alert(t *testing.T, alert string, fires bool) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s: %s fires: %t", c.name, alert, fires), func() (string, bool) {
		samples, err := c.query(`ALERTS{alertstate="firing",alertname="` + alert + `"}`)
		return fmt.Sprint(samples, err), err == nil && len(samples) > 0 == fires
	})
}

func tunnelAlert(t *testing.T) {
	onTestbed(t, "link", "cut", "rome", "milan")
	rome.fires(t, "LiqoTunnelDown")
	milan.fires(t, "LiqoTunnelDown")
	onTestbed(t, "link", "heal", "rome", "milan")
	rome.ends(t, "LiqoTunnelDown")
	milan.ends(t, "LiqoTunnelDown")
}

// remotePod is a pod that only runs at the provider.
const remotePod = `
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {liqo.io/type: virtual-node}
  containers:
  - {name: echo, image: %q, imagePullPolicy: Never, resources: {requests: {cpu: %s}}}
`

func quotaAlert(t *testing.T) {
	rome.apply(t, fmt.Sprintf(remotePod, "large", "testbed.local/echo:1", "480m"))
	milan.fires(t, "LiqoQuotaExhausted")
	rome.kubectl(t, "-n", "shop", "delete", "pod", "large")
	milan.ends(t, "LiqoQuotaExhausted")
}

func stuckAlert(t *testing.T) {
	rome.apply(t, fmt.Sprintf(remotePod, "stuck", "testbed.local/nothing:1", "1m"))
	rome.fires(t, "LiqoPodsStuck")
	rome.kubectl(t, "-n", "shop", "delete", "pod", "stuck")
	rome.ends(t, "LiqoPodsStuck")
}
