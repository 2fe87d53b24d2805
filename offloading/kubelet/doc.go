// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the node of a virtual kubelet: it maintains the Node and its lease, and serves
// the kubelet API. Requests about a pod are forwarded to the provider. Lists and configuration come
// from this cluster, and metrics from the provider's metrics API.
//
// The package reads VirtualNode, ForeignCluster and NamespaceMap from the local cluster and the
// liveness of the provider from its API server. It writes Node and Lease to the local cluster.
// Package reflection reflects pods; this package only reads its cache.
//
// Start reading at RunNode.
package kubelet
