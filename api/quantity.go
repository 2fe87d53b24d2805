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
	// mostQuantity replaces quantities beyond these bounds: 2^63-1.
	mostQuantity = "9223372036854775807"
)

// DecodeBounded decodes JSON that a peer may have written. resource.Quantity takes exponents of any size, and decodes,
// compares and adds them in time and memory that grow with ten to their power: 1e10000000 takes seconds, and larger
// ones stop a process. Where a pod or a slice has such a quantity, it becomes more than anybody grants.
func DecodeBounded(text []byte, into any) error {
	if hasLongNumber(text) {
		decoder := gojson.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		var tree any
		if err := decoder.Decode(&tree); err != nil {
			return fmt.Errorf("read quantities: %w", err)
		}
		bounded, err := gojson.Marshal(boundedIn(tree, ""))
		if err != nil {
			return fmt.Errorf("bound quantities: %w", err)
		}
		text = bounded
	}
	return json.Unmarshal(text, into)
}

// hasLongNumber reports whether a number, or a text that is one, has an exponent of three digits, more than mostDigits
// characters or escaped ones. It looks at each byte about once, because all objects of peers pass here.
func hasLongNumber(text []byte) bool {
	inWord := false
	for at := 0; at < len(text); at++ {
		c := text[at]
		if c == '\\' && isEscapedNumber(text[at:]) {
			return true
		}
		begins := isOfNumber(c) && !inWord
		if inWord = isOfNumber(c) || isLetter(c); !begins {
			continue
		}
		digits := ofNumber(text[at:])
		if digits > mostDigits {
			return true
		}
		if at += digits; at < len(text) && text[at]|0x20 == 'e' {
			exponent := ofNumber(text[at+1:])
			at += exponent
			if exponent > 2 && (at+1 == len(text) || !isLetter(text[at+1])) { // else a part of a hash
				return true
			}
		} else {
			at-- // the next may end the word
		}
	}
	return false
}

// ofNumber returns how many bytes at the beginning of a text can be those of a number without its exponent.
func ofNumber(text []byte) int {
	for at, c := range text {
		if !isOfNumber(c) {
			return at
		}
	}
	return len(text)
}

func isOfNumber(c byte) bool { return '0' <= c && c <= '9' || c == '.' || c == '+' || c == '-' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// isEscapedNumber reports whether a text begins with an escape, such as \u0065, of a character of numbers.
func isEscapedNumber(text []byte) bool {
	if len(text) < 6 || text[1] != 'u' {
		return false
	}
	c, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return err == nil && c < 0x80 && (isOfNumber(byte(c)) || c|0x20 == 'e')
}

// ofQuantities are the fields of pods and slices whose values are quantities or hold some by name.
var ofQuantities = map[string]bool{
	"resources": true, "requests": true, "limits": true, "overhead": true, "sizeLimit": true, "divisor": true,
}

// boundedIn returns a tree of JSON whose quantities are bounded. The field is that of the tree; empty in others.
func boundedIn(tree any, field string) any {
	switch tree := tree.(type) {
	case map[string]any:
		for key, value := range tree {
			below := key
			if _, isLeaf := value.(map[string]any); !isLeaf && ofQuantities[field] {
				below = field
			}
			tree[key] = boundedIn(value, below)
		}
	case []any:
		for i := range tree {
			tree[i] = boundedIn(tree[i], "")
		}
	case string:
		if ofQuantities[field] && isLongQuantity(tree) {
			return mostQuantity
		}
	case gojson.Number:
		if ofQuantities[field] && isLongQuantity(tree.String()) {
			return mostQuantity
		}
	}
	return tree
}

var withExponent = regexp.MustCompile(`^[+-]?[0-9.]+[eE]([+-]?[0-9]+)$`)

func isLongQuantity(text string) bool {
	if len(text) > mostDigits {
		return true
	}
	found := withExponent.FindStringSubmatch(text)
	if found == nil {
		return false
	}
	exponent, err := strconv.Atoi(found[1])
	return err != nil || exponent > mostExponent || exponent < -mostExponent
}
