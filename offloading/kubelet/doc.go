// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package kubelet is the node side of a virtual kubelet: it keeps the Node and its lease, and
// serves the kubelet API by passing requests on to the provider.
//
// VirtualNode, ForeignCluster and NamespaceMap come from the home cluster, the liveness of the
// provider from its API server; Node and Lease go to the home cluster. Pods are not its business:
// they are reflected, in another room.
//
// Start reading at RunNode.
package kubelet
