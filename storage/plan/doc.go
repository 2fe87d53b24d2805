// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides which objects provide the volume of a claim, how the volume is expanded,
// when it is deleted, and with which objects it is moved. All functions are pure.
//
// Start reading at Claim, then Grow, Released and Abandoned; Move is for liqoctl.
package plan
