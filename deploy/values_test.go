// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// bases are installations in which a key may act; some act only together with others.
var bases = [...]string{
	"{discovery: {config: {clusterID: rome}}, ipam: {podCIDRs: [10.10.0.0/16], serviceCIDR: 10.110.0.0/16}, metrics: {enabled: true, prometheusOperator: {enabled: true}}, " +
		"controllerManager: {metrics: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}}}, virtualKubelet: {metrics: {podMonitor: {enabled: true}}}, " +
		"networking: {fabric: {metrics: {podMonitor: {enabled: true}}}, gatewayTemplates: {metrics: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}}}}}",
	"{discovery: {config: {clusterID: rome}}, ipam: {podCIDR: 10.10.0.0/16, serviceCIDR: 10.110.0.0/16}}",
}

// TestEveryKeyActsOrIsNamed: a changed value changes what is applied, or the notes say that its
// key means nothing.
func TestEveryKeyActsOrIsNamed(t *testing.T) {
	t.Parallel()
	c := load(t)
	schema := &node{}
	if err := json.Unmarshal(c.Schema, schema); err != nil {
		t.Fatal(err)
	}
	var before [len(bases)]map[string]string
	for i := range bases {
		before[i] = changed(t, c, bases[i], nil, nil)
	}
	keys := 0
	schema.walk(schema.Defs, nil, func(path []string, n *node) {
		keys++
		if path[0] == "global" { // Helm's own
			return
		}
		for i, base := range bases {
			standard := at(c.Values, path)
			if chosen := at(values(t, base), path); chosen != nil {
				standard = chosen
			}
			after := changed(t, c, base, path, n.other(schema.Defs, standard))
			if names(after[notes], path) || !maps.Equal(objectsOnly(before[i]), objectsOnly(after)) {
				return
			}
		}
		t.Errorf("%s changes nothing, and the notes do not say so", strings.Join(path, "."))
	})
	if keys < 150 {
		t.Errorf("only %d keys were tried", keys)
	}
}

const notes = "liqo/templates/NOTES.txt"

// names tells whether notes name a key or a map that holds it.
func names(text string, path []string) bool {
	for n := len(path); n > 0; n-- {
		if strings.Contains(text, "Ignored: "+strings.Join(path[:n], ".")+" ") {
			return true
		}
	}
	return false
}

func objectsOnly(rendered map[string]string) map[string]string {
	out := maps.Clone(rendered)
	delete(out, notes)
	return out
}

// changed renders a base with one more value.
func changed(t *testing.T, c *chart.Chart, base string, path []string, value any) map[string]string {
	t.Helper()
	vals := values(t, base)
	into := vals
	for i, key := range path {
		if i == len(path)-1 {
			into[key] = value
			break
		}
		if _, ok := into[key].(map[string]any); !ok {
			into[key] = map[string]any{}
		}
		into = into[key].(map[string]any)
	}
	full, err := chartutil.ToRenderValues(c, vals, chartutil.ReleaseOptions{Name: "liqo", Namespace: "liqo", IsInstall: true}, nil)
	if err != nil {
		t.Fatalf("%s=%v: %v", strings.Join(path, "."), value, err)
	}
	rendered, err := engine.Render(c, full)
	if err != nil {
		t.Fatalf("%s=%v: %v", strings.Join(path, "."), value, err)
	}
	return rendered
}

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	vals, err := chartutil.ReadValues([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return vals
}

// at is the value of a key, nil for none.
func at(values map[string]any, path []string) any {
	var value any = values
	for _, key := range path {
		m, _ := value.(map[string]any)
		value = m[key]
	}
	return value
}

// node is a part of the values' schema.
type node struct {
	Ref        string           `json:"$ref"`
	Defs       map[string]*node `json:"$defs"`
	Type       any              `json:"type"`
	Enum       []string         `json:"enum"`
	AnyOf      []*node          `json:"anyOf"`
	Items      *node            `json:"items"`
	Pattern    string           `json:"pattern"`
	Properties map[string]*node `json:"properties"`
}

// follow is what a reference leads to, and the first of alternatives.
func (n *node) follow(defs map[string]*node) *node {
	if len(n.AnyOf) > 0 {
		n = n.AnyOf[0]
	}
	if name, ok := strings.CutPrefix(n.Ref, "#/$defs/"); ok {
		return defs[name]
	}
	return n
}

// walk visits the keys that hold no others, in order.
func (n *node) walk(defs map[string]*node, path []string, visit func(path []string, n *node)) {
	n = n.follow(defs)
	if len(n.Properties) == 0 {
		visit(path, n)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(n.Properties)) {
		n.Properties[key].walk(defs, append(path[:len(path):len(path)], key), visit)
	}
}

// other is a value that the schema allows and that differs from the default.
func (n *node) other(defs map[string]*node, standard any) any {
	n = n.follow(defs)
	for _, word := range n.Enum {
		if word != standard {
			return word
		}
	}
	switch n.Type {
	case "boolean":
		return standard != true
	case "integer":
		return 12345
	case "array":
		return []any{n.Items.other(defs, nil)}
	case "object":
		out := map[string]any{}
		for key, property := range n.Properties {
			out[key] = property.other(defs, nil)
		}
		if len(out) == 0 {
			out["changed"] = "changed"
		}
		return out
	}
	switch {
	case strings.Contains(n.Pattern, "(ms|s|m|h)"):
		return "12345s"
	case strings.Contains(n.Pattern, "/[0-9]"):
		return "192.0.2.0/24"
	case strings.Contains(n.Pattern, "Ki|Mi"):
		return "12345Ki"
	case strings.Contains(n.Pattern, "https?"):
		return "https://203.0.113.7:6443"
	}
	return "changed"
}
