// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/liqo-go/liqo/api"
)

// printQuery prints the part of data at a dotted path: a scalar as a line, an object in the format,
// which is YAML if empty. With a format, nothing is escaped.
func (e *env) printQuery(data any, path, format string) error {
	exact := format != ""
	if !exact {
		format = "yaml"
	} else if err := checkFormat(format); err != nil {
		return err
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
