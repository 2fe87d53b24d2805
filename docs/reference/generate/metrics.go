// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// metricName matches the names of metrics that we write. Those of libraries are theirs.
var metricName = regexp.MustCompile(`^((liqo|container|node|kubelet|kubernetes)_[a-z_]+|scrape_error)$`)

// family is what the source does not say about metrics of one process, whose names begin with prefix.
type family struct{ prefix, unit, labels, cost string }

// serving is a process, where it serves metrics, and its families. The first whose prefix fits describes a metric.
type serving struct {
	process  string
	families []family
}

const (
	perPeer      = "one series for each peer"
	perNode      = "one series for each virtual node"
	perContainer = "one series for each container of the virtual node, and a request for each offloaded namespace " +
		"to the provider's `metrics.k8s.io` at each scrape"
)

func servings() []serving {
	tunnel, quota, certificate := "`driver`, `cluster_id`", "`cluster_id`, `quota`, `resource`", "`cluster_id`, `identity`, `type`"
	reflected := "`namespace`, `reflector_resource`, `cluster_id`, `node_name`"
	perObject := "one series for each offloaded namespace and kind, of at most 9 and the custom ones"
	pods := "reads the node's pods at each scrape"
	container := "`container`, `namespace`, `pod`"
	return []serving{
		{"Gateways: port `gw-metrics` of their pods", []family{
			{"liqo_peer_receive_bytes_total", "bytes", tunnel, perPeer},
			{"liqo_peer_transmit_bytes_total", "bytes", tunnel, perPeer},
			{"liqo_peer_latency_histogram_us", "microseconds", tunnel + ", `le`", "17 series for each peer"},
			{"liqo_peer_latency_us", "microseconds", tunnel, perPeer},
			{"liqo_peer_is_connected", "0 or 1", tunnel, perPeer},
			{"liqo_peer_tunnel_info", "1", tunnel + ", `implementation`", perPeer},
			{"liqo_wireguard_implementation", "1", "`driver`, `implementation`", perPeer},
		}},
		{"Gateways and fabric: ports `gw-metrics` and `metrics`", []family{
			{"liqo_network_last_look", "seconds since 1970", "", "one series for each gateway and node"},
			{"liqo_network_", "number", "", "one series for each gateway and node"},
		}},
		{"Controller: port `metrics`, with those of " +
			"[controller-runtime](https://book.kubebuilder.io/reference/metrics-reference)", []family{
			{"liqo_peer_info", "1", "`cluster_id`, `role`", perPeer + " and replica of the controller"},
			{"liqo_peer_condition", "0 or 1", "`cluster_id`, `module`, `condition`",
				"up to 11 series for each peer and replica of the controller"},
			{"liqo_identity_certificate_", "seconds since 1970", certificate,
				"one series for each Identity and replica of the controller"},
			{"liqo_quota_", "cores, bytes or number", quota,
				"one series for each resource, of at most 16, of each Quota and replica of the controller"},
		}},
		{"Virtual kubelets: port `metrics`, with those of the Go runtime and the process", []family{
			{"liqo_virtual_kubelet_reflection_oldest_seconds", "seconds", "`reflector_resource`, `cluster_id`, `node_name`",
				"one series for each virtual node and kind"},
			{"liqo_virtual_kubelet_reflection_", "number", reflected, perObject},
			{"liqo_virtual_kubelet_pods", "number", "`cluster_id`, `node_name`, `state`",
				"5 series for each virtual node; " + pods},
			{"liqo_virtual_kubelet_oldest_pod_seconds", "seconds", "`cluster_id`, `node_name`, `state`",
				"2 series for each virtual node"},
		}},
		{"Virtual nodes: the kubelet API, as of any node", []family{
			{"container_scrape_error", "0 or 1", "", perNode},
			{"container_cpu_", "seconds", container + "; of cAdvisor also `cpu`, `id`, `image`, `name`", perContainer},
			{"container_start_", "seconds since 1970", container + "; of cAdvisor also `id`, `image`, `name`", perContainer},
			{"container_memory_", "bytes", container + "; of cAdvisor also `id`, `image`, `name`", perContainer},
			{"kubelet_node_name", "1", "`node`", perNode},
			{"kubelet_running_containers", "number", "`container_state`", "2 series for each virtual node; " + pods},
			{"kubelet_running_pods", "number", "", perNode + "; " + pods},
			{"kubernetes_healthcheck", "0 or 1", "`name`, `type`", "3 series for each virtual node"},
			{"node_cpu_", "seconds", "", perNode},
			{"node_memory_", "bytes", "", perNode},
			{"scrape_error", "0 or 1", "", perNode},
		}},
	}
}

// metrics writes a row for each metric in the source, and fails for one that no family describes.
func metrics(t *text) error {
	t.printf("[monitoring.md](../monitoring.md) says how to have them served, and which dashboards and alerts use them.\n" +
		"*Cost* is the number of series, and what a scrape reads that is not in memory as a number.\n")
	found := map[string]metric{}
	if err := eachFile(func(_ string, tree *ast.File) { findMetrics(tree, found) }); err != nil {
		return err
	}
	for _, s := range servings() {
		t.printf("\n## %s\n", s.process)
		t.header("metric", "type", "unit", "labels", "meaning", "cost")
		for _, name := range slices.Sorted(maps.Keys(found)) {
			i := slices.IndexFunc(s.families, func(f family) bool { return strings.HasPrefix(name, f.prefix) })
			if i < 0 {
				continue
			}
			f, m := s.families[i], found[name]
			t.row(code(name), m.kind, f.unit, f.labels, m.help, f.cost)
			delete(found, name)
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("nothing says unit, labels and cost of %v", slices.Sorted(maps.Keys(found)))
	}
	return nil
}

type metric struct{ kind, help string }

// findMetrics finds calls and literals with a metric's name. The text after it is the help; a text or the name of what
// is called or made says the type.
func findMetrics(tree *ast.File, found map[string]metric) {
	ast.Inspect(tree, func(n ast.Node) bool {
		var texts []string
		switch n := n.(type) {
		case *ast.CallExpr:
			for _, argument := range n.Args {
				texts = append(texts, literal(argument))
			}
			texts = append(texts, nameOf(n.Fun))
		case *ast.CompositeLit:
			for _, element := range n.Elts {
				if pair, ok := element.(*ast.KeyValueExpr); ok {
					texts = append(texts, literal(pair.Value))
				}
			}
			texts = append(texts, nameOf(n.Type))
		}
		i := slices.IndexFunc(texts, metricName.MatchString)
		if i < 0 {
			return true
		}
		m := metric{kind: "histogram"}
		for _, text := range texts[i+1:] {
			switch {
			case text == "NewDesc" || text == "Gauges":
				m.kind = "gauge"
			case slices.Contains([]string{"counter", "gauge"}, text):
				m.kind = text
			case strings.Contains(text, " ") && m.help == "":
				m.help = text
			}
		}
		if m.help != "" {
			found[texts[i]] = m
		}
		return true
	})
}

// nameOf returns the last part of a name, or "".
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}
