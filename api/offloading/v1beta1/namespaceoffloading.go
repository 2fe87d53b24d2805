// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceMappingStrategy names remote namespaces.
// +kubebuilder:validation:Enum=EnforceSameName;DefaultName;SelectedName
type NamespaceMappingStrategy string

// Ways to name remote namespaces.
const (
	// EnforceSameNameMapping: the local name.
	EnforceSameNameMapping NamespaceMappingStrategy = "EnforceSameName"
	// DefaultNameMapping: the local name, a dash, the ID of this cluster.
	DefaultNameMapping NamespaceMappingStrategy = "DefaultName"
	// SelectedNameMapping: spec.remoteNamespaceName.
	SelectedNameMapping NamespaceMappingStrategy = "SelectedName"
)

// PodOffloadingStrategy says where pods may run.
// +kubebuilder:validation:Enum=Local;Remote;LocalAndRemote
type PodOffloadingStrategy string

// Where pods may run.
const (
	// LocalStrategy: on the nodes of this cluster.
	LocalStrategy PodOffloadingStrategy = "Local"
	// RemoteStrategy: on virtual nodes.
	RemoteStrategy PodOffloadingStrategy = "Remote"
	// LocalAndRemoteStrategy: on both.
	LocalAndRemoteStrategy PodOffloadingStrategy = "LocalAndRemote"
)

// OffloadingPhase sums up the remote namespaces.
type OffloadingPhase string

// Sums of remote namespaces.
const (
	// OffloadingReady: all exist.
	OffloadingReady OffloadingPhase = "Ready"
	// OffloadingNoClusterSelected: the selector matches no virtual node.
	OffloadingNoClusterSelected OffloadingPhase = "NoClusterSelected"
	// OffloadingInProgress: some are being created.
	OffloadingInProgress OffloadingPhase = "InProgress"
	// OffloadingSomeFailed: some could not be created.
	OffloadingSomeFailed OffloadingPhase = "SomeFailed"
	// OffloadingAllFailed: none could be created.
	OffloadingAllFailed OffloadingPhase = "AllFailed"
	// OffloadingTerminating: they are being deleted.
	OffloadingTerminating OffloadingPhase = "Terminating"
)

// RemoteNamespaceConditionType is one fact about a remote namespace.
type RemoteNamespaceConditionType string

// Facts about a remote namespace.
const (
	// NamespaceOffloadingRequired: the cluster is selected.
	NamespaceOffloadingRequired RemoteNamespaceConditionType = "OffloadingRequired"
	// NamespaceReady: the remote namespace exists.
	NamespaceReady RemoteNamespaceConditionType = "Ready"
)

// RemoteNamespaceCondition is one fact about the namespace at one provider.
type RemoteNamespaceCondition struct {
	// Type is the fact.
	Type RemoteNamespaceConditionType `json:"type"`
	// Status is True or False.
	Status corev1.ConditionStatus `json:"status"`
	// LastTransitionTime is when Status changed last.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Reason is a word for machines.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is text for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// RemoteNamespaceConditions are the facts about the namespace at one provider.
// +listType=map
// +listMapKey=type
type RemoteNamespaceConditions []RemoteNamespaceCondition

// NamespaceOffloadingSpec is written by a user.
// +kubebuilder:validation:XValidation:rule="self.namespaceMappingStrategy == oldSelf.namespaceMappingStrategy",message="The NamespaceMappingStrategy value cannot be modified after creation"
// +kubebuilder:validation:XValidation:rule="(has(self.remoteNamespaceName) ? self.remoteNamespaceName : \"\") == (has(oldSelf.remoteNamespaceName) ? oldSelf.remoteNamespaceName : \"\")",message="The RemoteNamespaceName value cannot be modified after creation"
// +kubebuilder:validation:XValidation:rule="self.namespaceMappingStrategy != 'SelectedName' || (has(self.remoteNamespaceName) && self.remoteNamespaceName.size() > 0)",message="RemoteNamespaceName is required with the SelectedName strategy"
type NamespaceOffloadingSpec struct {
	// NamespaceMappingStrategy names the remote namespaces. It never changes.
	// +optional
	// +kubebuilder:default=DefaultName
	NamespaceMappingStrategy NamespaceMappingStrategy `json:"namespaceMappingStrategy,omitempty"`
	// RemoteNamespaceName is the remote name with SelectedName. It never changes.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$`
	RemoteNamespaceName string `json:"remoteNamespaceName,omitempty"`
	// PodOffloadingStrategy says where pods may run; it may be changed.
	// +optional
	// +kubebuilder:default=LocalAndRemote
	PodOffloadingStrategy PodOffloadingStrategy `json:"podOffloadingStrategy,omitempty"`
	// ClusterSelector chooses virtual nodes by their labels: terms are alternatives, the
	// expressions of a term must all hold; nil or no terms = all.
	// +optional
	ClusterSelector *corev1.NodeSelector `json:"clusterSelector,omitempty"`
}

// NamespaceOffloadingStatus is written by the controller.
type NamespaceOffloadingStatus struct {
	// OffloadingPhase sums up the remote namespaces.
	// +optional
	OffloadingPhase OffloadingPhase `json:"offloadingPhase,omitempty"`
	// RemoteNamespaceName is the name used remotely.
	// +optional
	RemoteNamespaceName string `json:"remoteNamespaceName,omitempty"`
	// RemoteNamespacesConditions are the facts by remote cluster ID.
	// +optional
	RemoteNamespacesConditions map[string]RemoteNamespaceConditions `json:"remoteNamespacesConditions,omitempty"`
	// ObservedGeneration is the generation of the spec this status belongs to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions say whether the namespace is offloaded and, if not, why.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NamespaceOffloading extends its namespace to other clusters. Its name is always "offloading".
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'offloading'",message="NamespaceOffloading name must match offloading"
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=namespaceoffloadings,singular=namespaceoffloading,categories=liqo,shortName=nso;nsof;nsoff;nsoffloading
// +kubebuilder:printcolumn:name="NamespaceMappingStrategy",type=string,JSONPath=`.spec.namespaceMappingStrategy`
// +kubebuilder:printcolumn:name="PodOffloadingStrategy",type=string,JSONPath=`.spec.podOffloadingStrategy`
// +kubebuilder:printcolumn:name="OffloadingPhase",type=string,JSONPath=`.status.offloadingPhase`
// +kubebuilder:printcolumn:name="RemoteNamespaceName",type=string,priority=10,JSONPath=`.status.remoteNamespaceName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NamespaceOffloading struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec defines the desired state.
	Spec NamespaceOffloadingSpec `json:"spec"`
	// Status reports the results.
	// +optional
	Status NamespaceOffloadingStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions for reading and writing.
func (x *NamespaceOffloading) GetConditions() *[]metav1.Condition { return &x.Status.Conditions }

// NamespaceOffloadingList is a list of NamespaceOffloading.
// +kubebuilder:object:root=true
type NamespaceOffloadingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []NamespaceOffloading `json:"items"`
}
