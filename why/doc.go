// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package why explains where an object is, which decisions led there, and what keeps it from
// working. It is pure: objects of one or two clusters in, one Answer out. cli/why.go reads the
// objects and prints the answer.
//
// Checks run in the order in which a pod passes from its creation to its start at a provider. The
// first check that finds something names the cause, since the later ones depend on it.
//
//	place            cause
//	the pod          PodMissing, PodFailed, OffloadingAborted, Terminating, SchedulingGated
//	its claims       ClaimMissing, ClaimPending
//	its namespace    NotOffloaded, StrategyLocal, CreatedBeforeOffloading
//	virtual nodes    NoVirtualNode, SelectorMatchesNone, PodSelectsNone
//	each of these    Draining, ProviderUnreachable, SliceNotGranted, VirtualKubeletDown, TunnelDown,
//	                 NodeNotReady, NodeCordoned, TaintNotTolerated, TiedToThisCluster,
//	                 NodeTooSmall
//	scheduler        NotScheduled, NoPlace
//	its node         NodeMissing, and those of each virtual node
//	NamespaceMap     NamespaceNotMapped, NamespaceNameTaken, NamespacePending
//	ShadowPod        UnknownVolume, ShadowPodMissing, QuotaRefused, PodForbidden, ProviderRefuses,
//	                 ShadowPodPending
//	remote pod       RemoteGated, RemoteClaimPending, ProviderHasNoPlace
//	containers       ImageMissing, ContainerFailing, NotReady
//	anything else    Unexplained
//
//	node             NodeMissing, SliceCordoned, and those of each virtual node
//	namespace        NamespaceMissing, and those of pods that concern it
//	service          ServiceMissing, LoadBalancerPending, NoLocalPod, NoEndpoint, SelectsNoPod, PodWithoutAddress, or
//	                 the cause of its first pod that is not ready
//	peer             NotPeered, NetworkFails, AccessFails, TenantCordoned, and those of virtual nodes
//
// Nothing is the reason of what works. Commands are built in answer.go: typedAt, which leaves out one
// with an argument that is more than a word to a shell. Start reading at Explain, then pod.go: podChecks.
package why
