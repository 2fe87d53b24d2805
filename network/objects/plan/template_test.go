// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// TestOptional: an optional field whose variable does not exist is left out, as in the mission's
// own template. All other mistakes are errors, and so is this one in a field that is not optional.
func TestOptional(t *testing.T) {
	text, err := os.ReadFile("../../../api/testdata/mission/gatewaytemplate.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var mission struct {
		Spec struct{ Template map[string]any }
	}
	if err := yaml.Unmarshal(text, &mission); err != nil {
		t.Fatal(err)
	}
	data := TemplateData{Spec: &netv1beta1.GatewayServerSpec{MTU: 1340}, Name: "milan", Namespace: "liqo-tenant-milan", ClusterID: "milan"}
	want := map[string]any{
		"metadata": map[string]any{"namespace": "liqo-tenant-milan", "labels": map[string]any{"example.com/cluster": "milan"}},
		"spec":     map[string]any{"name": "milan"},
	}
	got, err := Render(mission.Spec.Template, data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the mission's template renders otherwise (-want +got):\n%s", diff)
	}
	for _, c := range []struct{ key, value, want string }{
		{"a", "{{ .Spec.Extra }}", "a: line 1: <.Spec.Extra>: can't evaluate field Extra"},
		{"?a", "{{ .Spec.MTU }}{{ .Spec.Extra }}", "a: line 1: <.Spec.Extra>: can't evaluate field Extra"},
		{"?a", "{{ .Spec.MTU.Extra }}", "a: line 1: <.Spec.MTU.Extra>: can't evaluate field Extra in type int"},
		{"?a", "{{ .Spec.Extra", "a: line 1: unclosed action"},
		{"?a", "{{ extra .Spec.Extra }}", `a: line 1: function "extra" not defined`},
	} {
		if _, err := Render(map[string]any{c.key: c.value}, data); err == nil || err.Error() != c.want {
			t.Errorf("%s: %s gives %v, want %s", c.key, c.value, err, c.want)
		}
	}
}

// TestOptionalNeedsAllVariablesEmpty: an optional field is kept if any variable below it is set, or
// if it has none.
func TestOptionalNeedsAllVariablesEmpty(t *testing.T) {
	data := TemplateData{
		Spec: &netv1beta1.GatewayServerSpec{SecretRef: &corev1.LocalObjectReference{}, Endpoint: &netv1beta1.Endpoint{Ports: []int32{7, 8}}},
		Name: "milan", ClusterID: "milan",
	}
	for _, c := range []struct{ in, want string }{
		{`{"?x": "a{{ .Spec.SecretRef.Name }}{{ .ClusterID }}"}`, `{"x": "amilan"}`},
		{`{"?x": "a{{ .ClusterID }}{{ .Spec.SecretRef.Name }}"}`, `{"x": "amilan"}`},
		{`{"?x": "a{{ .Spec.SecretRef.Name }}{{ .SecretName }}"}`, `{}`},
		{`{"?nodePort": "{{ .Spec.Endpoint.NodePort }}"}`, `{}`},
		{`{"?x": "a"}`, `{"x": "a"}`},
		{`{"?x": {"a": "{{ .SecretName }}", "b": ["{{ .Spec.Endpoint.NodePort }}", "{{ .Name }}"]}}`, `{"x": {"a": "", "b": [0, "milan"]}}`},
		{`{"?x": {"a": "{{ .SecretName }}", "b": ["{{ .Spec.Endpoint.NodePort }}", "c"], "?d": "{{ .Spec.MTU }}"}}`, `{}`},
		{`{"?x": {"?a": "{{ .SecretName }}", "b": "{{ .Name }}"}}`, `{"x": {"b": "milan"}}`},
		{`{"?x": "{{ if .SecretName }}{{ .SecretName }}{{ else }}{{ .Name }}{{ end }}"}`, `{"x": "milan"}`},
		{`{"?x": "{{ with .SecretName }}{{ .Name }}{{ end }}"}`, `{}`},
		{`{"?x": "{{ range .Spec.Endpoint.NodePorts }}{{ . }}{{ else }}{{ .Name }}{{ end }}"}`, `{"x": "milan"}`},
		{`{"?x": "{{ with .SecretName }}{{ $.Name }}{{ end }}-"}`, `{"x": "-"}`},
		{`{"?x": "{{ printf \"%s\" (index .Spec.ServiceLabels \"a\") }}"}`, `{}`},
		{`{"?x": "{{ index .Spec.Endpoint.Ports 1 }}"}`, `{"x": 8}`},
		{`{"?x": "{{ define \"y\" }}{{ . }}{{ end }}{{ template \"y\" .SecretName }}"}`, `{}`},
		{`{"?x": "{{ define \"y\" }}{{ . }}{{ end }}{{ template \"y\" .Name }}"}`, `{"x": "milan"}`},
	} {
		var in map[string]any
		if err := json.Unmarshal([]byte(c.in), &in); err != nil {
			t.Fatal(err)
		}
		out, err := Render(in, data)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		got, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.NewReplacer(": ", ":", ", ", ",").Replace(c.want); string(got) != want {
			t.Errorf("%s renders as %s, want %s", c.in, got, want)
		}
	}
}

// FuzzRender: no template crashes the controller, and the result is JSON without optional keys. An
// error names the field.
func FuzzRender(f *testing.F) {
	for _, s := range []string{
		`{"?a":"{{ .Spec.MTU }}","b":["{{ .Name }}"],"labels":{"n":"{{ .Spec.MTU }}"}}`,
		`{"a":"{{ range .Spec.Endpoint.Ports }}{{ . }}{{ else }}{{ $.Spec.Endpoint.Port }}{{ end }}"}`,
		`{"?a":{"b":"{{ if .SecretName }}x{{ end }}"},"?c":"{{ with $x := .Name }}{{ $x }}{{ end }}"}`,
		`{"a":"{{ define \"x\" }}{{ template \"x\" }}{{ end }}{{ template \"x\" }}"}`,
		`{"?a":"","?b":"{{}}","?c":"{{ index .Spec.Endpoint.Ports 3 }}","?d":"{{ .Spec.Endpoint.Ports.x }}"}`,
		`{"a":"{{ range 1000000000 }}0123456789{{ end }}"}`,
		`{"a":"{{ range 1000000000 }}{{ end }}"}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var tmpl map[string]any
		if json.Unmarshal([]byte(s), &tmpl) != nil {
			return
		}
		out, err := Render(tmpl, TemplateData{
			Spec: &netv1beta1.GatewayServerSpec{MTU: 1340, Endpoint: &netv1beta1.Endpoint{Port: 51840, Ports: []int32{1, 2}}},
			Name: "milan", ClusterID: "milan",
		})
		if err != nil {
			if !strings.Contains(err.Error(), ": ") {
				t.Errorf("the error names no field: %v", err)
			}
			return
		}
		if _, err := json.Marshal(out); err != nil {
			t.Errorf("rendered %v: %v", out, err)
		}
	})
}
