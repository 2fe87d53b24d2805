// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/liqo-go/liqo/deploy"
)

// most is how many fields an object below spec or status may have to be expanded. Larger ones are types of Kubernetes,
// such as PodSpec.
const most = 60

// api writes a section for each kind.
func api(t *text) error {
	crds, err := deploy.CRDs()
	if err != nil {
		return err
	}
	t.printf("All kinds of Liqo, by group. `kubectl explain <kind>.spec` shows the same, with the types of\n" +
		"Kubernetes that are not expanded here. A field is optional unless it says *required*; `[]` marks a\n" +
		"list, `{}` a map. Conditions are on a page of [their own](conditions.md).\n\n")
	for _, crd := range crds {
		t.printf("- [%s](#%s)\n", crd.Spec.Names.Kind, strings.ToLower(crd.Spec.Names.Kind))
	}
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			names, schema := crd.Spec.Names, version.Schema.OpenAPIV3Schema
			t.printf("\n## %s\n\n%s\n\n`%s/%s`, %s; kubectl: `%s`\n", names.Kind, oneLine(schema.Description),
				crd.Spec.Group, version.Name, strings.ToLower(string(crd.Spec.Scope)),
				strings.Join(append([]string{names.Plural}, names.ShortNames...), "`, `"))
			t.header("field", "type", "meaning")
			for _, part := range []string{"spec", "status"} {
				if p, ok := schema.Properties[part]; ok {
					fields(t, part, p)
				}
			}
		}
	}
	return nil
}

// fields writes a row for each field below a schema.
func fields(t *text, path string, schema apiextensionsv1.JSONSchemaProps) {
	if size(schema) > most && strings.Contains(path, ".") {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		p, at := schema.Properties[name], path+"."+name
		remarks := []string{p.Description}
		if slices.Contains(schema.Required, name) {
			remarks = append([]string{"*required*"}, remarks...)
		}
		if p.Default != nil {
			remarks = append(remarks, "Default: "+code(string(p.Default.Raw))+".")
		}
		t.row(code(at), typeOf(p), strings.Join(remarks, " "))
		if name == "conditions" {
			continue
		}
		fields(t, at, p)
		if p.Items != nil && p.Items.Schema != nil {
			fields(t, at+"[]", *p.Items.Schema)
		}
		if p.AdditionalProperties != nil && p.AdditionalProperties.Schema != nil {
			fields(t, at+"{}", *p.AdditionalProperties.Schema)
		}
	}
}

// size counts the fields below a schema.
func size(schema apiextensionsv1.JSONSchemaProps) int {
	n := len(schema.Properties)
	for _, p := range schema.Properties {
		n += size(p)
		if p.Items != nil && p.Items.Schema != nil {
			n += size(*p.Items.Schema)
		}
		if p.AdditionalProperties != nil && p.AdditionalProperties.Schema != nil {
			n += size(*p.AdditionalProperties.Schema)
		}
	}
	return n
}

// typeOf names the type of a field, with the values and limits that its schema allows.
func typeOf(p apiextensionsv1.JSONSchemaProps) string {
	kind := p.Type
	switch {
	case p.XIntOrString:
		kind = "integer or string"
	case p.Items != nil && p.Items.Schema != nil:
		kind = "[]" + typeOf(*p.Items.Schema)
	case p.AdditionalProperties != nil && p.AdditionalProperties.Schema != nil:
		kind = "map of " + typeOf(*p.AdditionalProperties.Schema)
	case p.Format != "":
		kind = p.Format
	}
	var values []string
	for _, value := range p.Enum {
		values = append(values, code(strings.Trim(string(value.Raw), `"`)))
	}
	if len(values) > 0 {
		kind = strings.Join(values, ", ")
	}
	if p.Minimum != nil && p.Maximum != nil {
		kind += fmt.Sprintf(", %g to %g", *p.Minimum, *p.Maximum)
	}
	return kind
}
