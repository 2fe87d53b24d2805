// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package api

// Annotations Liqo writes.
const (
	// AnnotationRemoteTenantNamespace is the tenant namespace at the provider, on a
	// kubeconfig Secret; users may write it too.
	AnnotationRemoteTenantNamespace = "liqo.io/remote-tenant-namespace"
	// AnnotationInBand ("true") on the control plane's Identity says that its proxy is the provider's
	// own, behind the tunnel: its address follows the provider's external range as this cluster sees it.
	AnnotationInBand = "liqo.io/in-band"
	// AnnotationApprovedAPIServer on an Identity is an endpoint that its provider names and that this cluster
	// may call: the URL of the API server, followed by " via " and the URL of the proxy if there is one.
	AnnotationApprovedAPIServer = "liqo.io/approved-api-server"
	// AnnotationApprovedCIDRs on a Configuration lists CIDRs, separated by commas, which the peer announced after the
	// peering was agreed and which need not be remapped. An administrator sets it.
	AnnotationApprovedCIDRs = "liqo.io/approved-cidrs"
	// AnnotationCreateVirtualNode on a ResourceSlice makes a VirtualNode for it, unless "false".
	AnnotationCreateVirtualNode = "liqo.io/create-virtual-node"
	// AnnotationCordon ("true") cordons a ResourceSlice at the provider.
	AnnotationCordon = "liqo.io/cordon"
	// AnnotationCordonTenant ("true") on a ResourceSlice says that its tenant is cordoned.
	AnnotationCordonTenant = "liqo.io/cordon-tenant"
	// AnnotationManagedByNamespaceMap on a remote Namespace is <tenant namespace>/<NamespaceMap>.
	AnnotationManagedByNamespaceMap = "liqo.io/managed-by-namespace-map"
	// AnnotationEndingNamespaces on a NamespaceMap of the consumer lists local namespaces, separated by commas: those
	// being deleted that the provider may not have removed yet. Pods in them are followed to their end. Controller
	// namespacemap writes it.
	AnnotationEndingNamespaces = "offloading.liqo.io/ending-namespaces"
	// AnnotationOriginalName on a remote Namespace is its name at the consumer.
	AnnotationOriginalName = "liqo.io/original-name"
	// AnnotationPermanentlyUnreachable ("true") on a ForeignCluster declares that the peer never answers again.
	AnnotationPermanentlyUnreachable = "liqo.io/foreign-cluster-permanently-unreachable"
	// AnnotationUninstalling ("true") on the controller's Deployment stops recreation.
	AnnotationUninstalling = "liqo.io/uninstalling"
	// AnnotationPeers on an IP lists the IDs of the only clusters that may reach it, separated by commas;
	// empty means none. An IP without it is there for every peer.
	AnnotationPeers = "ipam.liqo.io/peers"
	// AnnotationPort on the IP of an endpoint of the API server is the port of the endpoint.
	AnnotationPort = "ipam.liqo.io/port"
	// AnnotationFormerUntil of a gateway server's Service is the time (RFC 3339) until which it has
	// ports for node ports that others replaced. Controller wg-gateway-server writes it.
	AnnotationFormerUntil = "networking.liqo.io/former-node-ports-until"
	// AnnotationDefault on an object of the installation is the default it was last made or changed to, as JSON. What
	// users change on the object stays until the default of the same field changes.
	AnnotationDefault = "liqo.io/default"
	// AnnotationPreinstalled ("true") marks Networks and IPs made at install.
	AnnotationPreinstalled = "liqo.io/preinstalled"
	// AnnotationWebhookServiceName on a webhook configuration is the Service behind it.
	AnnotationWebhookServiceName = "liqo.io/webhook-service-name"
	// AnnotationOffloadingPatchHash restarts a virtual kubelet when its patch changes.
	AnnotationOffloadingPatchHash = "liqo.io/offloading-patch-hash"
	// AnnotationDirectConnectionsData on a ShadowEndpointSlice is JSON for direct endpoints.
	AnnotationDirectConnectionsData = "liqo.io/direct-connections-data"
	// AnnotationProviderEndpoints on a ShadowEndpointSlice is JSON of further endpoints: pods at the provider, by the
	// addresses they have there.
	AnnotationProviderEndpoints = "offloading.liqo.io/provider-endpoints"
	// AnnotationServiceAccountForPodName is the pod a remote token Secret is for.
	AnnotationServiceAccountForPodName = "offloading.liqo.io/service-account-for-pod-name"
	// AnnotationServiceAccountForPodUID is the UID of that pod.
	AnnotationServiceAccountForPodUID = "offloading.liqo.io/service-account-for-pod-uid"
	// AnnotationServiceAccountExpiration is when the token ends.
	AnnotationServiceAccountExpiration = "offloading.liqo.io/service-account-expiration"
	// AnnotationAdmitted on a pod records what admission required of its node. It shows for which pods
	// the requirements have changed since.
	AnnotationAdmitted = "offloading.liqo.io/admitted"
	// AnnotationFeatures announces optional additions to the contract between clusters, joined by commas.
	AnnotationFeatures = "liqo.io/features"
)

// FeatureStandardConditions, in the list AnnotationFeatures of a copied ResourceSlice, says that its
// consumer's schema knows Ready, Reconciling and Stalled among the provider's answers.
const FeatureStandardConditions = "standard-conditions"

// Annotations that users set on reflected objects.
const (
	// AnnotationSkipReflection keeps an object from being reflected (DenyList).
	AnnotationSkipReflection = "liqo.io/skip-reflection"
	// AnnotationAllowReflection lets an object be reflected (AllowList).
	AnnotationAllowReflection = "liqo.io/allow-reflection"
	// AnnotationForceRemoteNodePort ("true") keeps the node ports of a Service.
	AnnotationForceRemoteNodePort = "liqo.io/force-remote-node-port"
	// AnnotationUseDirectConnections ("true") lets pods at two providers talk directly.
	AnnotationUseDirectConnections = "liqo.io/use-direct-connections"
	// AnnotationDenyDirectConnections ("true") on the Configuration of a peer keeps other peers from naming its pods
	// as endpoints: they are not reached directly.
	AnnotationDenyDirectConnections = "liqo.io/deny-direct-connections"
	// AnnotationAntiAffinityPreset is soft, hard or propagate.
	AnnotationAntiAffinityPreset = "liqo.io/anti-affinity-preset"
	// AnnotationAntiAffinityLabels lists the label keys of the selector, comma separated.
	AnnotationAntiAffinityLabels = "liqo.io/anti-affinity-labels"
	// AnnotationAPIServerSupport is remote or disabled; absent = the consumer's API server.
	AnnotationAPIServerSupport = "liqo.io/api-server-support"
	// AnnotationRemoteServiceAccountName is the service account at the provider.
	AnnotationRemoteServiceAccountName = "liqo.io/remote-service-account-name"
	// AnnotationRemoteRuntimeClassName is the runtime class at the provider.
	AnnotationRemoteRuntimeClassName = "liqo.io/remote-runtime-class-name"
	// AnnotationRemoteStorageClass is the storage class at the provider, on a PVC.
	AnnotationRemoteStorageClass = "liqo.io/remote-storage-class"
	// AnnotationRemoteAccessModes lists the access modes at the provider, on a PVC.
	AnnotationRemoteAccessModes = "liqo.io/remote-access-modes"
)
