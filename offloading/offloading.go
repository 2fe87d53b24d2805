// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package offloading runs pods of this cluster in others, and pods of others here.
//
// As consumer it turns NamespaceOffloadings into the NamespaceMap of each peer, VirtualNodes into
// virtual kubelets, and leads new pods through admission. As provider it makes namespaces, pods
// and endpoint slices of what consumers put into NamespaceMaps, ShadowPods and
// ShadowEndpointSlices, within their Quotas. Objects come from and go to the API server only;
// what is decided lies in plan. Reflection of objects between clusters is not done here, and the
// node side of a virtual node is the package kubelet.
//
// Start reading at Controllers.
package offloading

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// Options are the settings of the room.
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
	// Namespaces are the names that consumers may have; StorageNamespace is reserved.
	Namespaces       plan.NamePatterns
	StorageNamespace string
	// NamespaceBounds bound what a consumer may have in each of its namespaces.
	NamespaceBounds plan.NamespaceBounds
	// GuestPods is what pods of consumers may have beyond what any workload needs.
	GuestPods plan.GuestPods
	// DenyDirectConnections prevents direct connections to addresses of third clusters.
	DenyDirectConnections bool
	// ReplaceLostPods says that offloaded pods that terminate on a node that is not ready are
	// deleted for good, so that their consumer starts others.
	ReplaceLostPods bool
	// WebhookPort is the port of the admission server.
	WebhookPort int
	// WebhookSecret is the Secret, in Liqo's namespace, that holds its certificate.
	WebhookSecret string
	// ShadowPodWorkers and ShadowEndpointSliceWorkers are how many are reconciled concurrently;
	// 0 means defaultWorkers.
	ShadowPodWorkers, ShadowEndpointSliceWorkers int
}

const defaultWorkers = 10

// Controllers are everything of the room that runs in the controller role.
func Controllers(o Options) []ctl.Registrar {
	quotas := newAccounts()
	all := []ctl.Registrar{
		schedulingLabel(),
		namespaceMap(o),
		namespaceOffloading(o),
		pendingPods{runtimeClass: o.Kubelet.RuntimeClass},
		virtualNode(o),
		cordon(),
		drain(),
		servingCertificates(),
		remoteNamespaces(o),
		takenBack(time.Now),
		quotas,
		shadowPod(o, quotas),
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
