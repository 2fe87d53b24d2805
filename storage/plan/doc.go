// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides where the volume of a claim comes from and when it goes. It is pure:
// everything it knows is in its inputs.
//
// Start reading at Claim, then Released and Abandoned.
package plan
