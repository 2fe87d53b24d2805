// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides where the volume of a claim comes from, how it grows and when it goes, and with
// what objects it is moved. It is pure:
// everything it knows is in its inputs.
//
// Start reading at Claim, then Grow, Released and Abandoned; Move is for liqoctl.
package plan
