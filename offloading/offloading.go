// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package offloading holds the controllers and the admission server for pods that run in another
// cluster than they belong to.
//
// As consumer it turns NamespaceOffloadings into the NamespaceMap of each peer and VirtualNodes
// into virtual kubelets, and admits new pods. As provider it creates namespaces, pods and endpoint
// slices from the NamespaceMaps, ShadowPods and ShadowEndpointSlices of consumers, within their
// Quotas. It reads from and writes to the local API server only. Package plan decides. Objects are
// reflected between clusters by another room, and package kubelet implements the virtual kubelet's
// node.
//
// Start reading at Controllers.
package offloading

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// Options holds the settings of the controllers and of the admission server.
type Options struct {
	// Kubelet holds the settings of all virtual kubelets: this cluster's ID, Liqo's namespace, pod
	// CIDRs.
	Kubelet plan.KubeletSettings
	// DefaultOptions names the VkOptionsTemplate of virtual nodes that name none.
	DefaultOptions types.NamespacedName
	// EnforceResources makes admission check ShadowPods against Quotas.
	EnforceResources bool
	// PodSecurity is the Pod Security level of the namespaces made for consumers; empty sets none.
	PodSecurity string
	// Namespaces are the patterns of names that consumers may use; StorageNamespace is reserved.
	Namespaces       plan.NamePatterns
	StorageNamespace string
	// NamespaceBounds are the limits in each namespace of a consumer.
	NamespaceBounds plan.NamespaceBounds
	// GuestPods lists the features that pods of consumers may use beyond those of ordinary
	// workloads.
	GuestPods plan.GuestPods
	// DenyDirectConnections prevents direct connections to addresses of third clusters.
	DenyDirectConnections bool
	// ReplaceLostPods force-deletes offloaded pods that terminate on a node that is not ready, so
	// that their consumer starts others.
	ReplaceLostPods bool
	// Replacing lists further kinds of controllers, as Kind.group, that replace deleted pods.
	Replacing plan.Replacing
	// WebhookPort is the port of the admission server.
	WebhookPort int
	// WebhookSecret is the Secret, in Liqo's namespace, that holds its certificate.
	WebhookSecret string
	// ShadowPodWorkers and ShadowEndpointSliceWorkers are how many are reconciled concurrently;
	// 0 means defaultWorkers.
	ShadowPodWorkers, ShadowEndpointSliceWorkers int
}

const defaultWorkers = 10

// Controllers returns the controllers, indexes and servers of the room for the controller role.
func Controllers(o Options) []ctl.Registrar {
	quotas, dropped := newAccounts(), &droppedFields{}
	all := []ctl.Registrar{
		schedulingLabel(),
		namespaceMap(o),
		namespaceOffloading(o),
		pendingPods{runtimeClass: o.Kubelet.RuntimeClass, replacing: o.Replacing},
		virtualNode(o),
		cordon(),
		drain(),
		servingCertificates(),
		remoteNamespaces(o),
		takenBack(time.Now),
		withdrawn(),
		quotas,
		quotaLimits(),
		quotas.usage(),
		dropped,
		shadowPod(o, quotas, dropped),
		podsByAddress(),
		slicesByProviderAddress(),
		shadowEndpointSlice(o),
		admissionServer{options: o, quotas: quotas},
		admissionCertificate(o),
		lostProviders(),
	}
	if o.NamespaceBounds.Secrets > 0 {
		all = append(all, secretCounts{o.NamespaceBounds})
	}
	if o.ReplaceLostPods {
		all = append(all, lostPods())
	}
	return all
}
