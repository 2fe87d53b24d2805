// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	chartvalues "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/engine"
)

// bases holds the values of installations that show the effect of each key which has one. Some keys
// have one only together with others.
var bases = [...]string{
	"{discovery: {config: {clusterID: rome}}, ipam: {podCIDRs: [10.10.0.0/16], serviceCIDR: 10.110.0.0/16}, metrics: {enabled: true, prometheusOperator: {enabled: true}}, " +
		"controllerManager: {metrics: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}}}, virtualKubelet: {metrics: {podMonitor: {enabled: true}}}, " +
		"networking: {fabric: {metrics: {podMonitor: {enabled: true}}}, gatewayTemplates: {metrics: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}}}}}",
	"{discovery: {config: {clusterID: rome}}, ipam: {podCIDR: 10.10.0.0/16, serviceCIDR: 10.110.0.0/16}}",
	"{discovery: {config: {clusterID: rome}}, ipam: {podCIDR: 10.10.0.0/16, serviceCIDR: 10.110.0.0/16}, " +
		"metrics: {prometheusOperator: {enabled: true}}, openshiftConfig: {enabled: true}}",
}

// TestEveryKeyActsOrIsNamed: a changed value changes the applied objects, or the notes say that its key
// has no effect.
func TestEveryKeyActsOrIsNamed(t *testing.T) {
	t.Parallel()
	c := load(t)
	schema := schemaOf(t, c)
	var before [len(bases)]map[string]string
	for i := range bases {
		before[i] = renderWith(t, c, bases[i], nil, nil)
	}
	noted := *c // renders the notes without the objects, which takes an eighth of the time
	noted.Templates = slices.DeleteFunc(slices.Clone(c.Templates), func(f *common.File) bool {
		return strings.HasSuffix(f.Name, ".yaml")
	})
	keys := 0
	schema.walk(schema.Defs, nil, func(path []string, n *node) {
		keys++
		// Helm's own, and what acts on nodes only; see TestOldKernelsAreRefused.
		if path[0] == "global" || path[0] == "requirements" {
			return
		}
		for i, base := range bases {
			standard := valueAt(c.Values, path)
			if chosen := valueAt(values(t, base), path); chosen != nil {
				standard = chosen
			}
			other := n.otherValue(schema.Defs, standard)
			if namesIgnored(renderWith(t, &noted, base, path, other)[notes], path) ||
				!maps.Equal(objectsOnly(before[i]), objectsOnly(renderWith(t, c, base, path, other))) {
				return
			}
		}
		t.Errorf("%s changes nothing, and the notes do not say so", strings.Join(path, "."))
	})
	if keys < 150 {
		t.Errorf("only %d keys were tried", keys)
	}
}

// TestValuesOfTheOriginal: an installation of the original has values that are accepted here, also with others in their
// place. The notes name those that do not act.
func TestValuesOfTheOriginal(t *testing.T) {
	t.Parallel()
	c := load(t)
	data, err := os.ReadFile("testdata/original-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	original := values(t, string(data))
	rendered := renderWith(t, c, string(data), nil, nil)
	for _, key := range []string{"tag v1.2.0", "networking.fabric.image.name", "webhook.image", "metricAgent", "telemetry"} {
		if !strings.Contains(rendered[notes], "Ignored: "+key+" ") {
			t.Errorf("the notes do not name %s:\n%s", key, rendered[notes])
		}
	}
	if text := rendered["liqo/templates/fabric.yaml"]; !strings.Contains(text, "image: liqo-go/liqo:"+c.Metadata.AppVersion) {
		t.Errorf("the fabric runs an image of the original:\n%s", text)
	}
	mirror := map[string]any{"name": "harbor.example/mirror/proxy", "version": "v1.2.0"}
	text := renderWith(t, c, bases[1], []string{"proxy", "image"}, mirror)[notes]
	for _, key := range []string{"proxy.image.name", "proxy.image.version"} {
		if !strings.Contains(text, "Ignored: "+key+" ") {
			t.Errorf("the notes do not name %s:\n%s", key, text)
		}
	}
	keys := 0
	schema := schemaOf(t, c)
	schema.walk(schema.Defs, nil, func(path []string, n *node) {
		if standard := valueAt(original, path); standard != nil {
			keys++
			renderWith(t, c, string(data), path, n.otherValue(schema.Defs, standard))
		}
	})
	if keys < 150 {
		t.Errorf("only %d keys were tried", keys)
	}
}

// TestEmptyKeys: a key without a value renders like an empty one, which is mostly the default.
func TestEmptyKeys(t *testing.T) {
	t.Parallel()
	c := load(t)
	standard := renderWith(t, c, bases[1], nil, nil)
	same := func(before map[string]string, key string) {
		after := renderWith(t, c, bases[1], strings.Split(key, "."), nil)
		if diff := cmp.Diff(objectsOnly(before), objectsOnly(after)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
	for _, of := range []string{"controllerManager", "proxy", "uninstaller", "networking.fabric"} {
		for _, key := range []string{"pod.extraArgs", "pod.labels", "pod.annotations", "image", "image.name", "image.version"} {
			same(standard, of+"."+key)
		}
	}
	for _, key := range []string{
		"common.extraArgs", "common.globalAnnotations", "controllerManager.metrics", "virtualKubelet.metrics",
		"virtualKubelet.extra.args", "networking.fabric.metrics", "networking.gatewayTemplates.metrics", "networking.gatewayTemplates.pod.labels",
		"networking.gatewayTemplates.server", "networking.peerServices", "networking.peerServices.keys",
		"networking.peerServices.loadBalancerIPs", "requirements", "metrics.enabled",
	} {
		same(standard, key)
	}
	for key, empty := range map[string]string{
		"offloading.namespaceWriters.users":  "offloading: {namespaceWriters: {users: []}}",
		"offloading.namespaceWriters.groups": "offloading: {namespaceWriters: {groups: []}}",
		"uninstaller.pod":                    "uninstaller: {pod: {resources: {requests: null}}}",
		"proxy.pod":                          "proxy: {pod: {resources: {requests: null}}}",
		"networking.gatewayTemplates.pod":    "networking: {gatewayTemplates: {pod: {tolerations: []}}}",
	} {
		same(renderWith(t, c, strings.TrimSuffix(bases[1], "}")+", "+empty+"}", nil, nil), key)
	}
}

func schemaOf(t *testing.T, c *chart.Chart) *node {
	t.Helper()
	schema := &node{}
	if err := json.Unmarshal(c.Schema, schema); err != nil {
		t.Fatal(err)
	}
	return schema
}

const notes = "liqo/templates/NOTES.txt"

// namesIgnored reports whether notes name a key, or a map that holds it, as ignored.
func namesIgnored(text string, path []string) bool {
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

// renderWith renders the chart with the values of a base and one more.
func renderWith(t *testing.T, c *chart.Chart, base string, path []string, value any) map[string]string {
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
	full, err := chartvalues.ToRenderValues(c, vals, common.ReleaseOptions{Name: "liqo", Namespace: "liqo", IsInstall: true}, nil)
	if err != nil {
		t.Fatalf("%s=%v: %v", strings.Join(path, "."), value, err)
	}
	rendered, err := engine.RenderWithClientProvider(c, full, inCluster())
	if err != nil {
		t.Fatalf("%s=%v: %v", strings.Join(path, "."), value, err)
	}
	return rendered
}

func values(t *testing.T, text string) map[string]any {
	t.Helper()
	vals, err := common.ReadValues([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return vals
}

// valueAt returns the value of a key; nil if there is none.
func valueAt(values map[string]any, path []string) any {
	var value any = values
	for _, key := range path {
		m, _ := value.(map[string]any)
		value = m[key]
	}
	return value
}

// node is a part of the schema of the values.
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

// resolve returns the first alternative of a node, or the definition that it refers to.
func (n *node) resolve(defs map[string]*node) *node {
	if len(n.AnyOf) > 0 {
		n = n.AnyOf[0]
	}
	if name, ok := strings.CutPrefix(n.Ref, "#/$defs/"); ok {
		return defs[name]
	}
	return n
}

// walk visits the keys without keys below them, in alphabetical order.
func (n *node) walk(defs map[string]*node, path []string, visit func(path []string, n *node)) {
	n = n.resolve(defs)
	if len(n.Properties) == 0 {
		visit(path, n)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(n.Properties)) {
		n.Properties[key].walk(defs, append(path[:len(path):len(path)], key), visit)
	}
}

// otherValue returns a value that the schema allows and that differs from the default.
func (n *node) otherValue(defs map[string]*node, standard any) any {
	n = n.resolve(defs)
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
		return []any{n.Items.otherValue(defs, nil)}
	case "object":
		out := map[string]any{}
		for key, property := range n.Properties {
			out[key] = property.otherValue(defs, nil)
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
	case strings.Contains(n.Pattern, "sha256"):
		return "sha256:" + strings.Repeat("0", 64)
	case strings.Contains(n.Pattern, "Ki|Mi"):
		return "12345Ki"
	case strings.Contains(n.Pattern, "https?"):
		return "https://203.0.113.7:6443"
	case strings.HasPrefix(n.Pattern, "^[A-Z]"):
		return "Changed.example.com"
	}
	return "changed"
}
