// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fields finds the fields of a kind that an API server has and a Go type lacks, and the reverse.
// Decoding drops such fields without an error. It does not decide what becomes of them.
//
//	OpenAPI of the API server ─▶ Read ─▶ Compare ◀─ Go type
//	object as JSON ─▶ Lost ◀─ Set ◀─────────┘
package fields

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Document is the part of an OpenAPI v3 document that names the fields of kinds.
type Document struct {
	Components struct {
		Schemas map[string]Schema `json:"schemas"`
	} `json:"components"`
}

// Schema is the part of an OpenAPI v3 schema that names fields. Values of maps are left out: those of
// the reflected kinds have no fields.
type Schema struct {
	Ref        string            `json:"$ref"`
	AllOf      []Schema          `json:"allOf"`
	Properties map[string]Schema `json:"properties"`
	Items      *Schema           `json:"items"`
	Default    any               `json:"default"`
	Kinds      []struct {
		Group, Version, Kind string
	} `json:"x-kubernetes-group-version-kind"`
}

// Set holds fields by their paths, like "spec.containers.image", with their defaults; nil = none is
// known.
type Set map[string]any

// Read reads the document of a group and version from an API server. Every authenticated user may,
// by the ClusterRole system:discovery.
func Read(ctx context.Context, c rest.Interface, gv schema.GroupVersion) (d Document, err error) {
	path := "/openapi/v3/apis/" + gv.String()
	if gv.Group == "" {
		path = "/openapi/v3/api/" + gv.Version
	}
	body, err := c.Get().AbsPath(path).SetHeader("Accept", "application/json").Stream(ctx)
	if err != nil {
		return d, fmt.Errorf("read %s: %w", path, err)
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(&d); err != nil {
		return d, fmt.Errorf("decode %s: %w", path, err)
	}
	return d, nil
}

// Compare returns the fields of a kind, without metadata and status, that t lacks, and those that only t
// has. t is a struct. A kind that the document lacks has none.
func (d Document) Compare(gvk schema.GroupVersionKind, t reflect.Type) (missing, extra Set) {
	c := comparison{d, Set{}, Set{}}
	for _, s := range d.Components.Schemas {
		for _, k := range s.Kinds {
			if (schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}) == gvk {
				c.compare("", s, t, nil)
			}
		}
	}
	return c.missing, c.extra
}

// comparison collects the result of Compare.
type comparison struct {
	Document
	missing, extra Set
}

// compare adds the fields below a path that only the schema or only the type has. within lists the
// references already followed; a schema that refers to itself is followed once.
func (c comparison) compare(path string, s Schema, t reflect.Type, within []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if s.Ref != "" && !slices.Contains(within, s.Ref) {
		name := strings.TrimPrefix(s.Ref, "#/components/schemas/")
		c.compare(path, c.Components.Schemas[name], t, append(slices.Clone(within), s.Ref))
	}
	for _, part := range s.AllOf {
		c.compare(path, part, t, within)
	}
	if s.Items != nil {
		c.compare(path, *s.Items, t, within)
	}
	if t.Kind() != reflect.Struct || len(s.Properties) == 0 {
		return
	}
	known := named(t)
	for name, property := range s.Properties {
		switch below := strings.TrimPrefix(path+"."+name, "."); {
		case isIgnored(below):
		case known[name] == nil:
			c.missing[below] = property.Default
		default:
			c.compare(below, property, known[name], within)
		}
	}
	for name := range known {
		below := strings.TrimPrefix(path+"."+name, ".")
		if _, ok := s.Properties[name]; !ok && !isIgnored(below) {
			c.extra[below] = nil
		}
	}
}

// isIgnored reports whether a field is not compared, because every kind has it.
func isIgnored(path string) bool {
	return slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, path)
}

// named returns the types of the fields of a struct by their names in JSON. Those of an embedded struct
// without a name are the struct's own.
func named(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		switch name, _, _ := strings.Cut(f.Tag.Get("json"), ","); {
		case name == "" && f.Anonymous && f.Type.Kind() == reflect.Struct:
			maps.Copy(out, named(f.Type))
		case name != "" && name != "-":
			out[name] = f.Type
		}
	}
	return out
}

// Lost returns the fields among missing that an object sets, sorted. A field with its default or null is
// not set; API servers also have defaults that their OpenAPI does not name.
func (s Set) Lost(object map[string]any) (paths []string) {
	for path, byDefault := range s {
		for _, value := range valuesAt(object, strings.Split(path, ".")) {
			if byDefault == nil || fmt.Sprint(value) != fmt.Sprint(byDefault) { // numbers differ in type
				paths = append(paths, path)
				break
			}
		}
	}
	slices.Sort(paths)
	return paths
}

// unknownField matches the warning of an API server about a field that its version of a kind lacks.
var unknownField = regexp.MustCompile(`^unknown field "([^"]+)"$`)

// indices matches the index of an element of a list in a path.
var indices = regexp.MustCompile(`\[\d+\]`)

// Unknown returns the path that a warning names as unknown; empty for other warnings.
func Unknown(warning string) string {
	m := unknownField.FindStringSubmatch(warning)
	if m == nil {
		return ""
	}
	return indices.ReplaceAllString(m[1], "")
}

// valuesAt returns the values at a path, in all elements of the lists on it.
func valuesAt(value any, path []string) (out []any) {
	if list, ok := value.([]any); ok && len(path) > 0 {
		for _, element := range list {
			out = append(out, valuesAt(element, path)...)
		}
		return out
	}
	switch {
	case value == nil: // like a field that is absent
		return nil
	case len(path) == 0:
		return []any{value}
	}
	object, _ := value.(map[string]any)
	if below, ok := object[path[0]]; ok {
		return valuesAt(below, path[1:])
	}
	return nil
}
