// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package api

// True is the value of labels and annotations that switch something on.
const True = "true"

// Labels of peerings, replication and credentials.
const (
	// LabelRemoteClusterID names the peer an object concerns: the provider on a virtual
	// Node, the origin on a replicated copy.
	LabelRemoteClusterID = "liqo.io/remote-cluster-id"
	// LabelTenantNamespace ("true") marks the namespace of one peering.
	LabelTenantNamespace = "liqo.io/tenant-namespace"
	// LabelTooManySecrets ("true") marks a consumer's namespace that has as many Secrets as it may have.
	LabelTooManySecrets = "liqo.io/too-many-secrets"
	// LabelReplication is "true" on an object to copy to the peer, "false" on a copy.
	LabelReplication = "liqo.io/replication"
	// LabelRemoteID names the cluster a replicated object goes to.
	LabelRemoteID = "liqo.io/remoteID"
	// LabelOriginID names the cluster a copy came from.
	LabelOriginID = "liqo.io/originID"
	// LabelReplicated ("true") marks a copy.
	LabelReplicated = "liqo.io/replicated"
	// LabelNonce ("true") marks the Secret with the challenge.
	LabelNonce = "liqo.io/nonce"
	// LabelSignedNonce ("true") marks the Secret with the answer.
	LabelSignedNonce = "liqo.io/signed-nonce"
	// LabelIdentityType is ControlPlane or ResourceSlice on a kubeconfig Secret.
	LabelIdentityType = "liqo.io/identity-type"
	// LabelResourceSliceName names the slice an Identity, Secret, VirtualNode or Quota serves.
	LabelResourceSliceName = "liqo.io/resourceslice-name"
	// LabelRemoteTenantCSR ("true") marks a CertificateSigningRequest of ours.
	LabelRemoteTenantCSR = "liqo.io/remote-tenant-csr"
	// LabelPeeringUserName marks what belongs to one peering user; value PeeringUserLabel(id).
	LabelPeeringUserName = "liqo.io/peering-user-name"
	// LabelCreatorUser names the API user who created a ShadowPod; set on admission.
	LabelCreatorUser = "liqo.io/creator-user"
)

// Labels of offloading.
const (
	// LabelType marks a virtual Node with the value TypeVirtualNode.
	LabelType = "liqo.io/type"
	// TypeVirtualNode is the value of LabelType on virtual nodes.
	TypeVirtualNode = "virtual-node"
	// LabelSchedulingEnabled ("true") sends the pods of a namespace through the pod webhook.
	LabelSchedulingEnabled = "liqo.io/scheduling-enabled"
	// LabelShadowPod ("true") marks a local pod that runs remotely.
	LabelShadowPod = "liqo.io/shadowPod"
	// LabelRemoteUnavailable marks a local offloaded pod whose provider is not reachable.
	LabelRemoteUnavailable = "liqo.io/remote-unavailable"
	// LabelManagedBy is ManagedByShadowPod or ManagedByShadowEndpointSlice on the object
	// made from one.
	LabelManagedBy = "liqo.io/managed-by"
	// ManagedByShadowPod is the value of LabelManagedBy on pods.
	ManagedByShadowPod = "shadowpod"
	// ManagedByShadowEndpointSlice is the value of LabelManagedBy on EndpointSlices.
	ManagedByShadowEndpointSlice = "shadowendpointslice"
	// GateNoted is the scheduling gate of a ShadowPod's pod. It is removed when the status of the
	// ShadowPod records the pod.
	GateNoted = "offloading.liqo.io/noted"
	// LabelVirtualNode names the virtual node a virtual kubelet serves.
	LabelVirtualNode = "liqo.io/virtual-node"
	// LabelOffloadingComponent is VirtualKubeletComponent on virtual kubelets.
	LabelOffloadingComponent = "offloading.liqo.io/component"
	// VirtualKubeletComponent is the value of LabelOffloadingComponent.
	VirtualKubeletComponent = "virtual-kubelet"
	// LabelOrigin is the consumer of a reflected object.
	LabelOrigin = "offloading.liqo.io/origin"
	// LabelDestination is the provider of a reflected object.
	LabelDestination = "offloading.liqo.io/destination"
	// LabelNodeName is the virtual node that reflected a remote object.
	LabelNodeName = "offloading.liqo.io/nodename"
	// LabelServiceAccountName is the service account of a remote token Secret.
	LabelServiceAccountName = "offloading.liqo.io/service-account-name"
	// LabelPodName is the pod an IP stands for.
	LabelPodName = "offloading.liqo.io/pod-name"
	// LabelPodNamespace is the namespace of the pod an IP stands for.
	LabelPodNamespace = "offloading.liqo.io/pod-namespace"
	// EndpointSliceManagedBy is the value of endpointslice.kubernetes.io/managed-by on
	// remote EndpointSlices; it keeps the native controller away.
	EndpointSliceManagedBy = "endpointslice.reflection.liqo.io"
)

// Labels of the network.
const (
	// LabelGatewayResource ("true") marks key Secrets and PublicKeys a gateway may use.
	LabelGatewayResource = "networking.liqo.io/gateway-resource"
	// LabelGatewayName names the gateway an object belongs to.
	LabelGatewayName = "networking.liqo.io/gateway-name"
	// LabelGatewayNamespace is the namespace of that gateway.
	LabelGatewayNamespace = "networking.liqo.io/gateway-namespace"
	// LabelNetworkingComponent is GatewayComponent on gateways.
	LabelNetworkingComponent = "networking.liqo.io/component"
	// GatewayComponent is the value of LabelNetworkingComponent.
	GatewayComponent = "gateway"
	// LabelGatewayActive ("true") marks the replica that carries the traffic.
	LabelGatewayActive = "networking.liqo.io/active"
	// LabelGatewayTemplate ("true") marks a CRD whose objects are gateway templates.
	LabelGatewayTemplate = "networking.liqo.io/gatewaytemplate"
	// LabelFirewallCategory is CategoryGateway or CategoryFabric: who applies the content.
	LabelFirewallCategory = "networking.liqo.io/firewall-category"
	// LabelFirewallSubcategory narrows the category.
	LabelFirewallSubcategory = "networking.liqo.io/firewall-subcategory"
	// LabelFirewallUnique names the only node or gateway that applies the content.
	LabelFirewallUnique = "networking.liqo.io/firewall-unique"
	// LabelRouteCategory is CategoryGateway or CategoryFabric: who applies the content.
	LabelRouteCategory = "networking.liqo.io/route-category"
	// LabelRouteSubcategory narrows the category.
	LabelRouteSubcategory = "networking.liqo.io/route-subcategory"
	// LabelRouteUnique names the only node that applies the content.
	LabelRouteUnique = "networking.liqo.io/route-unique"
)

// Values of the category labels.
const (
	CategoryGateway        = "gateway"
	CategoryFabric         = "fabric"
	SubcategoryAllGateways = "all-gateways"
	SubcategoryIPMapping   = "ip-mapping"
	SubcategoryFabric      = "fabric"
	SubcategoryFabricNode  = "fabric-node"
	SubcategoryAllNodes    = "all-nodes"
	SubcategorySingleNode  = "single-node"
)

// Labels of address allocation.
const (
	// LabelCIDRType is CIDRTypePod or CIDRTypeExternal on a Network made from a Configuration.
	LabelCIDRType = "configuration.liqo.io/cidr-type"
	// CIDRTypePod is a value of LabelCIDRType.
	CIDRTypePod = "pod"
	// CIDRTypeExternal is a value of LabelCIDRType.
	CIDRTypeExternal = "external"
	// LabelNetworkType is the class of a Network, one of the NetworkType values.
	LabelNetworkType = "ipam.liqo.io/network-type"
	// LabelNetworkNotRemapped ("true") asks for exactly the requested CIDR.
	LabelNetworkNotRemapped = "ipam.liqo.io/network-not-remapped"
	// LabelNetworkRemapped ("true") asks for any CIDR but the requested one.
	LabelNetworkRemapped = "ipam.liqo.io/network-remapped"
	// LabelNetworkShared ("true") allows overlaps with other shared Networks.
	LabelNetworkShared = "ipam.liqo.io/network-shared"
	// LabelNetworkName is the Network an IP was taken from.
	LabelNetworkName = "ipam.liqo.io/network-name"
	// LabelNetworkNamespace is the namespace of that Network.
	LabelNetworkNamespace = "ipam.liqo.io/network-namespace"
	// LabelIPType is IPTypeAPIServer or IPTypeAPIServerProxy.
	LabelIPType = "ipam.liqo.io/ip-type"
	// IPTypeAPIServer is the IP of the local API server.
	IPTypeAPIServer = "api-server"
	// IPTypeAPIServerProxy is the IP of liqo-proxy.
	IPTypeAPIServerProxy = "api-server-proxy"
	// LabelEndpointSlice is the EndpointSlice an API server IP was made from.
	LabelEndpointSlice = "ipam.liqo.io/endpointslice"
)

// Values of LabelNetworkType.
const (
	NetworkTypePodCIDR      = "pod-cidr"
	NetworkTypeServiceCIDR  = "service-cidr"
	NetworkTypeExternalCIDR = "external-cidr"
	NetworkTypeInternalCIDR = "internal-cidr"
)

// Labels of everything.
const (
	// LabelManaged ("true") is on every object Liqo creates.
	LabelManaged = "liqo.io/managed"
	// LabelWebhook ("true") marks both webhook configurations.
	LabelWebhook = "liqo.io/webhook"
	// LabelWebhookBackend is on the pods that serve webhooks.
	LabelWebhookBackend = "webhook.liqo.io/backend"
	// LabelAppName is the component.
	LabelAppName = "app.kubernetes.io/name"
	// LabelAppComponent is the module of a component.
	LabelAppComponent = "app.kubernetes.io/component"
	// LabelAppInstance is the release and the component.
	LabelAppInstance = "app.kubernetes.io/instance"
	// LabelAppPartOf is PartOf on everything of the chart.
	LabelAppPartOf = "app.kubernetes.io/part-of"
	// LabelAppVersion is the version of Liqo that the object was installed with.
	LabelAppVersion = "app.kubernetes.io/version"
	// LabelAppManagedBy is ManagedByLiqo on RBAC objects made at run time.
	LabelAppManagedBy = "app.kubernetes.io/managed-by"
	// PartOf is the value of LabelAppPartOf.
	PartOf = "liqo"
	// ManagedByLiqo is the value of LabelAppManagedBy on what the controller creates.
	ManagedByLiqo = "liqo"
)

// AppComponentPeeringUser is the value of LabelAppComponent by which ClusterRoles are found.
const AppComponentPeeringUser = "peering-user"
