// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// TestCountRules: elements count wherever nft prints them.
func TestCountRules(t *testing.T) {
	rules, elements, err := countRules([]byte(`{"nftables": [
		{"metainfo": {"version": "1.0.6"}},
		{"chain": {"name": "forward"}},
		{"set": {"name": "large0", "type": "ipv4_addr", "elem": ["10.11.0.1", {"prefix": {"addr": "10.12.0.0", "len": 16}}]}},
		{"set": {"name": "empty", "type": "ipv4_addr"}},
		{"map": {"name": "large1", "type": "ipv4_addr", "map": "ipv4_addr", "elem": [["10.11.0.1", "10.70.0.1"]]}},
		{"rule": {"chain": "forward", "expr": [{"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "@large0"}}]}},
		{"rule": {"chain": "forward", "expr": [{"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": {"set": ["a", "b", "c"]}}}]}}
	]}`))
	if must(t, err); rules != 2 || elements != 6 {
		t.Errorf("%g rules and %g elements, want 2 and 6", rules, elements)
	}
}
