// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e checks the testbed itself on real clusters: that what it starts serves,
// survives what tests do to it, and leaves the machine as it was. It needs root and
// about two minutes; its clusters do not meet those of other testbeds.
package e2e
