// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"strings"
	"testing"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// FuzzRender: no template brings the controller down, and what renders is JSON without optional
// keys. An error names the field.
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
