// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"

	gojson "encoding/json"

	"k8s.io/apimachinery/pkg/util/json"
)

const (
	// mostExponent bounds the exponents of quantities. Kubernetes caps quantities at 2^63-1, less than 1e19, and rounds
	// them to 1e-9.
	mostExponent = 20
	// mostDigits bounds the characters of quantities.
	mostDigits = 64
	// mostQuantity replaces other quantities: 2^63-1.
	mostQuantity = "9223372036854775807"
)

// DecodeBounded decodes JSON that a peer may have written, after BoundQuantities.
func DecodeBounded(text []byte, into any) error {
	text, err := BoundQuantities(text)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// BoundQuantities returns JSON in which all quantities of objects are legal and of usual size. resource.Quantity takes
// exponents of any size, and decodes, compares and adds them in time and memory that grow with ten to their power:
// 1e10000000 takes seconds, and larger ones stop a process. One that is not legal stops the decoding of a whole list.
// Such quantities become more than anybody grants. An error says that the text is not JSON.
func BoundQuantities(text []byte) ([]byte, error) {
	if !hasOddQuantity(text) {
		return text, nil
	}
	decoder := gojson.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, fmt.Errorf("read quantities: %w", err)
	}
	bounded, err := gojson.Marshal(boundedIn(tree, place{}))
	if err != nil {
		return nil, fmt.Errorf("bound quantities: %w", err)
	}
	return bounded, nil
}

// place holds the keys of an object and of the value in it that is looked at; empty in lists.
type place struct{ object, value string }

// isQuantity reports whether a text or a number there is a quantity: one of a list of resources, or a field of its own.
// Labels may have the same keys, but are no objects.
func (p place) isQuantity() bool {
	switch p.object {
	case "resources", "requests", "limits", "overhead", "capacity", "allocatable", "allocatedResources", "hard", "used":
		return true
	case "emptyDir":
		return p.value == "sizeLimit"
	case "resourceFieldRef":
		return p.value == "divisor"
	}
	return false
}

// hasOddQuantity reports whether a text has a quantity that isUsual refuses. It looks at each byte once and decodes
// nothing, because all objects of peers pass here: keys and quantities with escapes are odd.
func hasOddQuantity(text []byte) bool {
	var outer []place
	var at place
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '{':
			outer, at = append(outer, at), place{object: at.value}
		case '[':
			outer, at = append(outer, at), place{}
		case '}', ']':
			if len(outer) == 0 {
				return true // it is not JSON
			}
			outer, at = outer[:len(outer)-1], outer[len(outer)-1]
		case ' ', '\t', '\r', '\n', ',', ':':
		case '"':
			content := stringAt(text[i+1:])
			if i += len(content) + 1; isKey(text[min(i+1, len(text)):]) {
				if bytes.IndexByte(content, '\\') >= 0 {
					return true
				}
				at.value = string(content)
			} else if at.isQuantity() && !isUsual(content) {
				return true
			}
		default: // a number, or true, false or null
			end := i
			for end < len(text) && bytes.IndexByte([]byte(" \t\r\n,]}"), text[end]) < 0 {
				end++
			}
			if at.isQuantity() && (c == '-' || '0' <= c && c <= '9') && !isUsual(text[i:end]) {
				return true
			}
			i = end - 1
		}
	}
	return false
}

// stringAt returns the content of a JSON string whose first quote is before the text.
func stringAt(text []byte) []byte {
	for end := 0; ; {
		next := bytes.IndexByte(text[end:], '"')
		if next < 0 {
			return text
		}
		end += next
		escapes := 0
		for escapes < end && text[end-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return text[:end]
		}
		end++
	}
}

// isKey reports whether a string was a key, given the text after it.
func isKey(text []byte) bool {
	for _, c := range text {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c == ':'
		}
	}
	return false
}

var quantity = regexp.MustCompile(`^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[KMGTPE]i|[numkMGTPE]|[eE]([+-]?[0-9]+))?$`)

// isUsual reports whether a text is a legal quantity of usual size.
func isUsual(text []byte) bool {
	if len(text) > mostDigits {
		return false
	}
	if isPlain(text) {
		return true
	}
	found := quantity.FindSubmatch(text)
	if found == nil {
		return false
	}
	if len(found[1]) == 0 {
		return true
	}
	exponent, err := strconv.Atoi(string(found[1]))
	return err == nil && -mostExponent <= exponent && exponent <= mostExponent
}

// isPlain reports whether a text is digits with a common suffix, as nearly all quantities are.
func isPlain(text []byte) bool {
	digits := 0
	for digits < len(text) && '0' <= text[digits] && text[digits] <= '9' {
		digits++
	}
	switch string(text[digits:]) {
	case "", "m", "Ki", "Mi", "Gi":
		return digits > 0
	}
	return false
}

// boundedIn returns a tree of JSON whose quantities are bounded.
func boundedIn(tree any, at place) any {
	switch tree := tree.(type) {
	case map[string]any:
		for key, value := range tree {
			tree[key] = boundedIn(value, place{at.value, key})
		}
	case []any:
		for i := range tree {
			tree[i] = boundedIn(tree[i], place{})
		}
	case string:
		if at.isQuantity() && !isUsual([]byte(tree)) {
			return mostQuantity
		}
	case gojson.Number:
		if at.isQuantity() && !isUsual([]byte(tree)) {
			return mostQuantity
		}
	}
	return tree
}
