// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides about offloaded pods: which namespaces are offloaded to which providers
// (NamespaceMap, NamespaceOffloading), which objects a virtual node consists of (VirtualNode,
// Node), what a provider creates for a consumer (RemoteNamespaces, ShadowPod, ShadowEndpointSlice),
// and how admission changes or refuses pods (AdmitPod, Refusal).
//
// All functions are pure: they take observed objects and return desired objects and verdicts. The
// ShadowPod of a pod is computed in reflection/translate.
//
// Start reading at NamespaceMap, which connects consumer and provider.
package plan
