// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package dataplane

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnsupportedFamilyHasNoRules: listing the rules of an unsupported family returns none and no error.
// IPv6 is such a family on nodes booted with ipv6.disable=1. DECnet stands in for it, which Linux
// supported until 6.1.
func TestUnsupportedFamilyHasNoRules(t *testing.T) {
	d, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if rules, err := d.rulesOf(unix.AF_DECnet); len(rules) > 0 || err != nil {
		t.Errorf("rules %v, error %v", rules, err)
	}
}
