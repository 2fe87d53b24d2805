// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespacePhase is the state of a remote namespace.
// +kubebuilder:validation:Enum=Accepted;CreationLoopBackOff;Terminating
type NamespacePhase string

// States of a remote namespace.
const (
	// NamespaceAccepted: it exists.
	NamespaceAccepted NamespacePhase = "Accepted"
	// NamespaceCreationLoopBackOff: it cannot be created; its name is taken or refused.
	NamespaceCreationLoopBackOff NamespacePhase = "CreationLoopBackOff"
	// NamespaceTerminating: it is being deleted.
	NamespaceTerminating NamespacePhase = "Terminating"
)

// RemoteNamespaceStatus is a remote namespace.
type RemoteNamespaceStatus struct {
	// RemoteNamespace is its name.
	// +optional
	RemoteNamespace string `json:"remoteNamespace,omitempty"`
	// Phase is its state.
	// +optional
	Phase NamespacePhase `json:"phase,omitempty"`
}

// Exists reports whether the remote namespace exists and belongs to the consumer. It may be being deleted. In phase
// CreationLoopBackOff, a namespace of this name belongs to another owner.
func (s RemoteNamespaceStatus) Exists() bool {
	return s.RemoteNamespace != "" && (s.Phase == NamespaceAccepted || s.Phase == NamespaceTerminating)
}

// NamespaceMapSpec is written by the consumer's controller.
type NamespaceMapSpec struct {
	// DesiredMapping gives the wished remote name for each local namespace.
	// +optional
	DesiredMapping map[string]string `json:"desiredMapping,omitempty"`
}

// NamespaceMapStatus is written by the provider.
type NamespaceMapStatus struct {
	// CurrentMapping gives the remote namespace for each local namespace.
	// +optional
	CurrentMapping map[string]RemoteNamespaceStatus `json:"currentMapping,omitempty"`
	// Conditions say whether the provider has all namespaces and, if not, why.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NamespaceMap lists the namespaces wanted at one provider; replicated from consumer to provider.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=namespacemaps,singular=namespacemap,categories=liqo,shortName=nm;nsmap
// +kubebuilder:printcolumn:name="Local",type=string,JSONPath=`.metadata.labels.liqo\.io/replication`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NamespaceMap struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec defines the desired state.
	// +optional
	Spec NamespaceMapSpec `json:"spec,omitzero"`
	// Status reports the namespaces that exist.
	// +optional
	Status NamespaceMapStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions for reading and writing.
func (x *NamespaceMap) GetConditions() *[]metav1.Condition { return &x.Status.Conditions }

// NamespaceMapList is a list of NamespaceMap.
// +kubebuilder:object:root=true
type NamespaceMapList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []NamespaceMap `json:"items"`
}
