// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides everything about running pods in other clusters: which namespaces are
// extended where (NamespaceMap, NamespaceOffloading), what a virtual node is made of
// (VirtualNode, Node), what a provider makes of what a consumer asks for (RemoteNamespaces,
// ShadowPod, ShadowEndpointSlice), and what admission says (AdmitPod, Refusal).
//
// All of it is pure: observed objects go in, desired objects and verdicts come out. It is not
// responsible for what the ShadowPod of a pod looks like: reflection/translate decides that.
//
// Start reading at NamespaceMap, which joins the two sides.
package plan
