// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the node side of a virtual kubelet: it keeps the Node and its lease, and
// serves the kubelet API. Requests about a pod are passed on to the provider; lists, metrics and
// configuration are answered from what this cluster knows and the provider measures.
//
// VirtualNode, ForeignCluster and NamespaceMap come from the home cluster, the liveness of the
// provider from its API server; Node and Lease go to the home cluster. Pods are reflected in another
// room, whose cache this one only reads.
//
// Start reading at RunNode.
package kubelet
