// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const metricsOn = "ipam: {podCIDR: 10.10.0.0/16, serviceCIDR: 10.110.0.0/16}\nmetrics: {enabled: true, prometheusOperator: {enabled: true}}\n"

// dashboard is what the tests read of Grafana's JSON.
type dashboard struct {
	UID, Title string
	Panels     []struct {
		ID      int
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ RefID, Expr, LegendFormat string }
	}
}

// dashboards renders the chart and returns the dashboards by the names of their ConfigMaps.
func dashboards(t *testing.T, values string) map[string]dashboard {
	t.Helper()
	rendered, err := render(t, values)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]dashboard{}
	for _, doc := range strings.Split(rendered["liqo/templates/dashboards.yaml"], "\n---\n") {
		var config struct {
			Metadata struct {
				Name   string
				Labels map[string]string
			}
			Data map[string]string
		}
		if err := yaml.Unmarshal([]byte(doc), &config); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		for file, text := range config.Data {
			var d dashboard
			if err := json.Unmarshal([]byte(text), &d); err != nil {
				t.Errorf("%s: %v\n%s", file, err, text)
			}
			if config.Metadata.Labels["grafana_dashboard"] != "1" {
				t.Errorf("%s has labels %v", config.Metadata.Name, config.Metadata.Labels)
			}
			all[config.Metadata.Name] = d
		}
	}
	return all
}

// TestDashboards: there are five, with panels that do not overlap.
func TestDashboards(t *testing.T) {
	t.Parallel()
	all := dashboards(t, metricsOn)
	if len(all) != 5 {
		t.Errorf("%d dashboards", len(all))
	}
	for name, d := range all {
		if d.UID == "" || d.Title == "" || len(d.Panels) == 0 {
			t.Errorf("%s: UID %q, title %q, %d panels", name, d.UID, d.Title, len(d.Panels))
		}
		taken := map[[2]int]string{}
		for i, p := range d.Panels {
			if p.ID != i+1 || p.Title == "" || len(p.Targets) == 0 || p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("%s: panel %d: %+v", name, i, p)
			}
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					place := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					if other := taken[place]; other != "" {
						t.Fatalf("%s: %q and %q overlap", name, other, p.Title)
					}
					taken[place] = p.Title
				}
			}
		}
	}
}

// TestMonitoringIsOffByDefault, and alerts need the kinds of the Prometheus operator.
func TestMonitoringIsOffByDefault(t *testing.T) {
	t.Parallel()
	const off = "ipam: {podCIDR: 10.10.0.0/16, serviceCIDR: 10.110.0.0/16}\n"
	for _, c := range []struct {
		values             string
		dashboards, alerts bool
	}{
		{off, false, false},
		{off + "metrics: {prometheusOperator: {enabled: true}}\n", false, false},
		{off + "metrics: {enabled: true}\n", true, false},
		{metricsOn, true, true},
		{off + "metrics: {enabled: true, dashboards: {enabled: false}, alerts: {enabled: false}, prometheusOperator: {enabled: true}}\n", false, false},
	} {
		rendered, err := render(t, c.values)
		if err != nil {
			t.Fatal(err)
		}
		made := strings.Contains(rendered["liqo/templates/dashboards.yaml"], "kind: ConfigMap")
		alerts := strings.Contains(rendered["liqo/templates/alerts.yaml"], "kind: PrometheusRule")
		if made != c.dashboards || alerts != c.alerts {
			t.Errorf("dashboards: %t, alerts: %t with\n%s", made, alerts, c.values)
		}
	}
}

// rules returns the alerts of the chart.
func rules(t *testing.T) []map[string]any {
	t.Helper()
	rendered, err := render(t, metricsOn)
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Spec struct {
			Groups []struct{ Rules []map[string]any }
		}
	}
	if err := yaml.Unmarshal([]byte(rendered["liqo/templates/alerts.yaml"]), &object); err != nil {
		t.Fatal(err)
	}
	if len(object.Spec.Groups) != 1 {
		t.Fatalf("%d groups of rules", len(object.Spec.Groups))
	}
	return object.Spec.Groups[0].Rules
}

// TestAlertsSayWhatToDo: each has a severity, waits before it fires, and names a command.
func TestAlertsSayWhatToDo(t *testing.T) {
	t.Parallel()
	for _, r := range rules(t) {
		labels, _ := r["labels"].(map[string]any)
		annotations, _ := r["annotations"].(map[string]any)
		description, _ := annotations["description"].(string)
		if r["for"] == nil || labels["severity"] == nil || annotations["summary"] == nil ||
			!strings.Contains(description, "'kubectl ") && !strings.Contains(description, "'liqoctl ") {
			t.Errorf("alert %v: for %v, labels %v, annotations %v", r["alert"], r["for"], labels, annotations)
		}
	}
}

// TestAlertsHaveARunbook: docs/monitoring.md has a section with commands for each.
func TestAlertsHaveARunbook(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(page), "\n### ")
	for _, r := range rules(t) {
		name := r["alert"].(string)
		if !slices.ContainsFunc(sections, func(s string) bool {
			return strings.HasPrefix(s, name+"\n") && strings.Contains(s, "```console\n")
		}) || !strings.Contains(sections[0], "[`"+name+"`](#"+strings.ToLower(name)+")") {
			t.Errorf("alert %s has no section with commands, or no link to it", name)
		}
	}
}

// TestQueriesNameKnownMetrics: dashboards and alerts use metrics that docs/reference/metrics.md has, or those of
// controller-runtime and Prometheus.
func TestQueriesNameKnownMetrics(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var queries []string
	for _, d := range dashboards(t, metricsOn) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				queries = append(queries, target.Expr)
			}
		}
	}
	for _, r := range rules(t) {
		queries = append(queries, r["expr"].(string))
	}
	others := []string{"controller_runtime_reconcile_total", "controller_runtime_reconcile_errors_total", "workqueue_depth"}
	names := regexp.MustCompile(`\b(liqo|controller_runtime|workqueue)_[a-z_]+`)
	found := 0
	for _, query := range queries {
		for _, name := range names.FindAllString(query, -1) {
			found++
			if !slices.Contains(others, name) && !strings.Contains(string(page), "`"+strings.TrimSuffix(name, "_bucket")+"`") {
				t.Errorf("unknown metric %s in %s", name, query)
			}
		}
	}
	if found < len(queries) {
		t.Errorf("found %d metrics in %d queries", found, len(queries))
	}
}
