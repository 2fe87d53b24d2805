// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
)

// print writes the objects to standard output as apply would send them.
func (e *env) print(format string, objects ...client.Object) error {
	return e.printEach(format, e.manifest, objects...)
}

// printStored writes objects to standard output as the cluster has them; nothing without a format.
func (e *env) printStored(format string, objects ...client.Object) error {
	if format == "" {
		return nil
	}
	return e.printEach(format, e.untyped, objects...)
}

// printEach writes what convert makes of the objects, in the format "json", "yaml" or "name".
func (e *env) printEach(
	format string, convert func(client.Object) (*unstructured.Unstructured, error), objects ...client.Object,
) error {
	for i, object := range objects {
		m, err := convert(object)
		if err != nil {
			return err
		}
		m.SetManagedFields(nil) // as kubectl does
		text := nameLine(m)
		if format != "name" {
			if text, err = encode(m.Object, format); err != nil {
				return err
			}
		}
		if i > 0 && format == "yaml" {
			fmt.Fprintln(e.Out, "---")
		}
		fmt.Fprint(e.Out, text)
	}
	return nil
}

// nameLine returns kind.group/name of an object as a line, as kubectl prints it with -o name.
func nameLine(object client.Object) string {
	kind := object.GetObjectKind().GroupVersionKind().GroupKind()
	return strings.ToLower(kind.String()) + "/" + object.GetName() + "\n"
}

// encode returns data in the format of an output flag: "json", or YAML for anything else.
func encode(data any, format string) (string, error) {
	text, err := json.MarshalIndent(data, "", "  ")
	if err == nil && format == "yaml" {
		text, err = yaml.JSONToYAML(refusedByYAML.ReplaceAllFunc(text, jsonEscape))
	} else {
		text = append(text, '\n')
	}
	if err != nil {
		return "", fmt.Errorf("encode the output: %w", err)
	}
	return string(text), nil
}

// refusedByYAML matches the characters that are allowed in the strings of JSON but not of YAML.
var refusedByYAML = regexp.MustCompile(`[\x7f-\x{9f}\x{feff}\x{fffe}\x{ffff}]`)

func jsonEscape(char []byte) []byte {
	r, _ := utf8.DecodeRune(char)
	return fmt.Appendf(nil, `\u%04x`, r)
}

// printQuery prints the part of data at a dotted path: a scalar as a line, an object in the format,
// which is YAML if empty. With a format, nothing is escaped.
func (e *env) printQuery(data any, path, format string) error {
	exact := format != ""
	if !exact {
		format = "yaml"
	}
	part, err := query(data, path)
	if err != nil {
		return err
	}
	switch part.(type) {
	case map[string]any, []any:
	case nil:
		return nil
	default:
		if path != "" {
			line := fmt.Sprint(part)
			if !exact {
				line = api.Printable(line)
			}
			fmt.Fprintln(e.Out, line)
			return nil
		}
	}
	// Printed from its own type, the fields of the whole keep their order in JSON.
	if path == "" {
		part = data
	}
	text, err := encode(part, format)
	if err != nil {
		return err
	}
	fmt.Fprint(e.Out, text)
	return nil
}

// query follows a dotted path through the JSON form of data; letter case does not matter.
func query(data any, path string) (any, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return nil, fmt.Errorf("encode the data: %w", err)
	}
	var at any
	if err := json.Unmarshal(text, &at); err != nil {
		return nil, fmt.Errorf("decode the data: %w", err)
	}
	if path == "" {
		return at, nil
	}
	rest := strings.TrimPrefix(path, ".")
	for before := ""; rest != ""; {
		object, ok := at.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("invalid query %q: %q is not an object", path, before)
		}
		key, tail, found := longestKey(object, rest)
		if !found {
			first, _, _ := strings.Cut(rest, ".")
			return nil, fmt.Errorf("invalid query %q: %q not found", path, first)
		}
		at, before, rest = object[key], key, tail
	}
	return at, nil
}

// longestKey returns the longest key that a path begins with: keys such as labels may contain dots.
func longestKey(object map[string]any, path string) (key, tail string, found bool) {
	for k := range object {
		if len(k) > len(path) || !strings.EqualFold(k, path[:len(k)]) || (len(path) > len(k) && path[len(k)] != '.') {
			continue
		}
		if !found || len(k) > len(key) {
			key, tail, found = k, strings.TrimPrefix(path[len(k):], "."), true
		}
	}
	return key, tail, found
}
