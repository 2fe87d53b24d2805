// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Role is the role of the peer for this cluster.
// +kubebuilder:validation:Enum=Consumer;Provider;ConsumerAndProvider;Unknown
type Role string

// Roles of a peer.
const (
	// RoleConsumer: the peer uses resources of this cluster.
	RoleConsumer Role = "Consumer"
	// RoleProvider: the peer gives resources to this cluster.
	RoleProvider Role = "Provider"
	// RoleConsumerAndProvider: both directions are in use.
	RoleConsumerAndProvider Role = "ConsumerAndProvider"
	// RoleUnknown: no module is in use yet.
	RoleUnknown Role = "Unknown"
)

// ConditionType names one fact about a peer.
// +kubebuilder:validation:Enum=Ready;Reconciling;Stalled;APIServerStatus;NetworkConnectionStatus;NetworkGatewayServerStatus;NetworkGatewayClientStatus;NetworkGatewayPresence;NetworkConfigurationStatus;AuthIdentityControlPlaneStatus;AuthTenantStatus;OffloadingVirtualNodeStatus;OffloadingNodeStatus
type ConditionType string

// Facts about a peer.
const (
	APIServerStatusCondition            ConditionType = "APIServerStatus"
	NetworkConnectionStatusCondition    ConditionType = "NetworkConnectionStatus"
	NetworkGatewayServerStatusCondition ConditionType = "NetworkGatewayServerStatus"
	NetworkGatewayClientStatusCondition ConditionType = "NetworkGatewayClientStatus"
	NetworkGatewayPresenceCondition     ConditionType = "NetworkGatewayPresence"
	NetworkConfigurationStatusCondition ConditionType = "NetworkConfigurationStatus"
	AuthIdentityControlPlaneCondition   ConditionType = "AuthIdentityControlPlaneStatus"
	AuthTenantStatusCondition           ConditionType = "AuthTenantStatus"
	OffloadingVirtualNodeCondition      ConditionType = "OffloadingVirtualNodeStatus"
	OffloadingNodeCondition             ConditionType = "OffloadingNodeStatus"
)

// ConditionStatus is the value of a fact about a peer.
// +kubebuilder:validation:Enum=None;Pending;Established;Error;Ready;NotReady;SomeNotReady;True;False
type ConditionStatus string

// Values of facts about a peer.
const (
	// ConditionNone is a schema default only; it is never written.
	ConditionNone ConditionStatus = "None"
	// ConditionPending: the connection is being set up.
	ConditionPending ConditionStatus = "Pending"
	// ConditionEstablished: the connection works.
	ConditionEstablished ConditionStatus = "Established"
	// ConditionError: the connection failed.
	ConditionError ConditionStatus = "Error"
	// ConditionReady: all subjects work.
	ConditionReady ConditionStatus = "Ready"
	// ConditionNotReady: no subject works.
	ConditionNotReady ConditionStatus = "NotReady"
	// ConditionSomeNotReady: some subjects work, some do not.
	ConditionSomeNotReady ConditionStatus = "SomeNotReady"
)

// Condition is one fact about a peer.
type Condition struct {
	// Type is the fact.
	Type ConditionType `json:"type"`
	// Status is its value.
	// +kubebuilder:default=None
	// +kubebuilder:validation:Required
	Status ConditionStatus `json:"status,omitempty"`
	// LastTransitionTime is when Status changed last.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Reason is a word for machines.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is text for people.
	// +optional
	Message string `json:"message,omitempty"`
	// ObservedGeneration is the generation of the spec that a standard condition (Ready, Reconciling,
	// Stalled) is about; 0 in others.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// Module is the state of one module with this peer.
type Module struct {
	// Enabled says that the module is in use with this peer.
	Enabled bool `json:"enabled"`
	// Conditions are the facts known about the module; empty while it is not in use.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
}

// Modules is the state of all modules with this peer.
type Modules struct {
	// Networking is the state of the tunnel and its configuration.
	Networking Module `json:"networking"`
	// Authentication is the state of tenant and identity.
	Authentication Module `json:"authentication"`
	// Offloading is the state of the virtual nodes.
	Offloading Module `json:"offloading"`
}

// TenantNamespace names the namespaces that hold the objects of one peering.
type TenantNamespace struct {
	// Local is the tenant namespace in this cluster; empty while there is none.
	// +optional
	Local string `json:"local,omitempty"`
	// Remote is the tenant namespace in the peer; empty while it is not known.
	// +optional
	Remote string `json:"remote,omitempty"`
}

// ForeignClusterSpec identifies the peer.
type ForeignClusterSpec struct {
	// ClusterID is the ID of the peer. It never changes.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="ClusterID field is immutable"
	ClusterID string `json:"clusterID"`
}

// ForeignClusterStatus describes the peer; written by the controller.
type ForeignClusterStatus struct {
	// Role is the role of the peer, not of this cluster.
	// +kubebuilder:default=Unknown
	// +kubebuilder:validation:Required
	Role Role `json:"role,omitempty"`
	// Modules is the state by module; nil before the first look.
	// +optional
	Modules *Modules `json:"modules,omitempty"`
	// Conditions are the facts about the peer as a whole: APIServerStatus, and the standard ones, Ready when
	// every fact here and of the modules in use is as it should be.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// APIServerURL is where the peer's API server is reached; empty without an identity there.
	// +optional
	APIServerURL string `json:"apiServerUrl,omitempty"`
	// ForeignProxyURL is the proxy on the way to the peer's API server; empty = none.
	// +optional
	ForeignProxyURL string `json:"foreignProxyUrl,omitempty"`
	// TenantNamespace names the namespaces of this peering.
	// +optional
	TenantNamespace *TenantNamespace `json:"tenantNamespace,omitempty"`
	// ObservedGeneration is the generation of the spec this status belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ForeignCluster sums up one peer; read-mostly, written by the controller.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=foreignclusters,singular=foreigncluster,categories=liqo,shortName=fc
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.status.role`
// +kubebuilder:printcolumn:name="ClusterID",type=string,priority=1,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ForeignCluster struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec identifies the peer.
	// +optional
	Spec ForeignClusterSpec `json:"spec,omitzero"`
	// Status describes the peer as observed.
	// +optional
	Status ForeignClusterStatus `json:"status,omitzero"`
}

// HasStandardConditions reports whether the conditions hold standard ones, as they do in every ForeignCluster.
func (*ForeignCluster) HasStandardConditions() bool { return true }

// ForeignClusterList is a list of ForeignCluster.
// +kubebuilder:object:root=true
type ForeignClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ForeignCluster `json:"items"`
}
