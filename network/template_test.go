// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	chartvalues "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/internal/story"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// TestChartTemplates follows the chart's templates to the workload: values.yaml holds the chart's
// values, gateway.yaml the user's gateway, workload.yaml the expected workload. The rendered object
// may have no field that its type does not have.
func TestChartTemplates(t *testing.T) {
	t.Parallel()
	story.Each(t, "testdata/*.txtar", func(t *testing.T, s *story.Story) {
		s.Expect(t, "workload.yaml", workload(t, chartTemplates(t, s.Part("values.yaml")), s.Part("gateway.yaml")))
	})
}

// TestTemplatesOfTheOriginal follows templates that were written for three containers to the workload,
// and to the condition that names what has no effect. That the process takes its arguments, and that
// Services lead to it, is tested where the process is: in cmd/liqo.
func TestTemplatesOfTheOriginal(t *testing.T) {
	t.Parallel()
	story.Each(t, "testdata/original/*.txtar", func(t *testing.T, s *story.Story) {
		template := parsed(t, string(s.Part("template.yaml")))[0]
		p := planned(t, map[string]*unstructured.Unstructured{template.GetKind(): template}, s.Part("gateway.yaml"))
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p.Status)
		if err != nil {
			t.Fatal(err)
		}
		conditions, _, _ := unstructured.NestedSlice(content, "status", "conditions")
		var says strings.Builder
		for _, c := range conditions {
			c := c.(map[string]any)
			fmt.Fprintf(&says, "%s %s: %s\n", c["type"], c["reason"], c["message"])
		}
		s.Expect(t, "condition.txt", says.String())
		s.Expect(t, "workload.yaml", specs(t, p.Objects))
	})
}

// workload renders the gateway and plans the workload of the rendered object.
func workload(t *testing.T, templates map[string]*unstructured.Unstructured, gateway []byte) string {
	t.Helper()
	return specs(t, planned(t, templates, gateway).Objects)
}

// planned renders the gateway and returns the plan of the rendered object.
func planned(t *testing.T, templates map[string]*unstructured.Unstructured, gateway []byte) desired.Plan {
	t.Helper()
	common := plan.WgGatewayInput{Keys: keys(t), Image: "liqo:test"}
	var kind struct{ Kind string }
	decode(t, gateway, &kind)
	if kind.Kind == "GatewayServer" {
		in := plan.GatewayServerInput{Root: &netv1beta1.GatewayServer{}, GatewayInput: plan.GatewayInput{Template: templates["WgGatewayServerTemplate"], LiqoNamespace: "liqo"}}
		decode(t, gateway, in.Root)
		wg := &netv1beta1.WgGatewayServer{}
		strictly(t, plan.GatewayServer(in), wg)
		return plan.WgGatewayServer(plan.WgServerInput{Root: wg, WgGatewayInput: common})
	}
	in := plan.GatewayClientInput{Root: &netv1beta1.GatewayClient{}, GatewayInput: plan.GatewayInput{Template: templates["WgGatewayClientTemplate"], LiqoNamespace: "liqo"}}
	decode(t, gateway, in.Root)
	wg := &netv1beta1.WgGatewayClient{}
	strictly(t, plan.GatewayClient(in), wg)
	return plan.WgGatewayClient(plan.WgClientInput{Root: wg, WgGatewayInput: common})
}

// specs prints the objects that have a spec.
func specs(t *testing.T, objects []desired.Object) string {
	t.Helper()
	var b strings.Builder
	for _, obj := range objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			t.Fatal(err)
		}
		if spec, ok := content["spec"]; ok {
			text, err := yaml.Marshal(map[string]any{"name": obj.GetName(), "labels": obj.GetLabels(), "annotations": obj.GetAnnotations(), "spec": spec})
			if err != nil {
				t.Fatal(err)
			}
			b.WriteString("---\n" + string(text))
		}
	}
	return b.String()
}

// keys is a pair as users bring it: from openssl, not clamped.
func keys(t *testing.T) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	decode(t, []byte("data: {privateKey: QEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEA=, publicKey: 17XoHTNuV4sTuNcG6C0GHjA4yWvOZs3PUNVmuW3buhA=}"), secret)
	return secret
}

// strictly reads the rendered object of a plan into its type.
func strictly(t *testing.T, p desired.Plan, into any) {
	t.Helper()
	if len(p.Objects) == 0 {
		t.Fatalf("%s: %s", p.Reason, p.Message)
	}
	rendered := p.Objects[0].(*unstructured.Unstructured)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(rendered.Object, into, true); err != nil {
		t.Fatalf("%s does not fit its type: %v", rendered.GetKind(), err)
	}
}

// chartTemplates returns the gateway templates of the chart, by kind.
func chartTemplates(t *testing.T, values []byte) map[string]*unstructured.Unstructured {
	t.Helper()
	byKind := map[string]*unstructured.Unstructured{}
	for _, defaults := range parsed(t, rendered(t, values, "defaults.yaml")) {
		files, _, _ := unstructured.NestedStringMap(defaults.Object, "data")
		for _, file := range files {
			for _, u := range parsed(t, file) {
				byKind[u.GetKind()] = u
			}
		}
	}
	return byKind
}

// rendered returns one rendered file of the chart.
func rendered(t *testing.T, values []byte, file string) string {
	t.Helper()
	c, err := loader.LoadDir("../deploy/liqo")
	if err != nil {
		t.Fatal(err)
	}
	var kept []*common.File
	for _, f := range c.Templates {
		if strings.HasSuffix(f.Name, ".tpl") || strings.HasSuffix(f.Name, file) {
			kept = append(kept, f)
		}
	}
	c.Templates = kept
	given, err := common.ReadValues(values)
	if err != nil {
		t.Fatal(err)
	}
	full, err := chartvalues.ToRenderValues(c, given, common.ReleaseOptions{Name: "liqo", Namespace: "liqo", IsInstall: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := engine.Render(c, full)
	if err != nil {
		t.Fatal(err)
	}
	return out["liqo/templates/"+file]
}

// splitDocs splits YAML documents; empty ones are left out.
func splitDocs(docs string) []string {
	list := strings.Split("\n"+docs, "\n---\n")
	return slices.DeleteFunc(list, func(doc string) bool { return strings.TrimSpace(doc) == "" })
}

func decode(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}
