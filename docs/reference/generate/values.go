// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/deploy"
)

// valueKey matches a line of values.yaml that begins a value, but no line of a list.
var valueKey = regexp.MustCompile(`^( *)([\w./-]+):(?: (.*))?$`)

// values writes a row for each value of the chart, with the comment above it in values.yaml. A comment above several
// values is written for the first one.
func values(t *text) error {
	files, err := deploy.ChartFiles()
	if err != nil {
		return err
	}
	defaults, schema := map[string]any{}, map[string]any{}
	if err := errors.Join(yaml.Unmarshal(files["values.yaml"], &defaults),
		json.Unmarshal(files["values.schema.json"], &schema)); err != nil {
		return err
	}
	t.printf("Values of the chart that act. Others that the schema accepts have no meaning here; the notes of the\n" +
		"installation name those that were set. [install.md](../install.md) explains what is set most.\n")
	t.header("value", "type", "default", "meaning")
	var path, comment []string
	for _, line := range strings.Split(string(files["values.yaml"]), "\n") {
		if remark, ok := strings.CutPrefix(strings.TrimSpace(line), "#"); ok {
			comment = append(comment, strings.TrimSpace(remark))
			continue
		}
		found := valueKey.FindStringSubmatch(line)
		if found == nil {
			comment = nil
			continue
		}
		depth := len(found[1]) / 2
		if depth > len(path) {
			continue // a key inside of a list
		}
		path = append(path[:depth:depth], found[2])
		value, _ := below(defaults, path).(map[string]any)
		if section := found[3] == "" && len(value) > 0; !section {
			row(t, path, below(defaults, path), property(schema, path), strings.Join(comment, " "))
		} else if len(comment) > 0 {
			t.row(code(strings.Join(path, ".")), "", "", strings.Join(comment, " "))
		}
		comment = nil
	}
	return nil
}

func row(t *text, path []string, value any, schema map[string]any, comment string) {
	kind := ""
	switch one := schema["type"].(type) {
	case string:
		kind = one
	case []any:
		kind = strings.Trim(fmt.Sprint(one), "[]")
	}
	if allowed, ok := schema["enum"].([]any); ok {
		list, _ := json.Marshal(allowed) // it was JSON before
		kind = code(strings.Trim(string(list), "[]"))
	}
	text, _ := json.Marshal(value) // it was YAML before
	t.row(code(strings.Join(path, ".")), kind, code(string(text)), comment)
}

// below returns what a tree has at a path; nil = nothing.
func below(tree any, path []string) any {
	for _, key := range path {
		branch, _ := tree.(map[string]any)
		tree = branch[key]
	}
	return tree
}

// property returns the schema of a value, following references; nil if the schema does not describe it.
func property(schema map[string]any, path []string) map[string]any {
	at := schema
	for _, key := range path {
		at, _ = below(at, []string{"properties", key}).(map[string]any)
		if reference, ok := at["$ref"].(string); ok {
			at, _ = below(schema, strings.Split(reference, "/")[1:]).(map[string]any)
		}
	}
	return at
}
