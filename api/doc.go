// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package api holds the names that clusters and users exchange besides the kinds: keys of labels,
// annotations and finalizers (labels.go, annotations.go, finalizers.go), names of objects (names.go,
// identity.go), addresses and ports (network.go). All of it is seen by users or by other
// clusters, so a value here never changes its meaning. The kinds themselves are in the
// packages below, the scheme of all of them in package scheme.
//
// The package holds no behaviour but naming, the check of cluster IDs, and functions on objects that
// every room needs (objects.go).
package api
