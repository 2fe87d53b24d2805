// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IdentityType says who uses an identity.
// +kubebuilder:validation:Enum=ControlPlane;ResourceSlice
type IdentityType string

// Users of identities.
const (
	// IdentityControlPlane: the controller, for replication.
	IdentityControlPlane IdentityType = "ControlPlane"
	// IdentityResourceSlice: the virtual kubelet of one slice.
	IdentityResourceSlice IdentityType = "ResourceSlice"
)

// IdentitySpec is a credential for one provider; written by liqoctl, a user, or the
// controller out of a ResourceSlice.
type IdentitySpec struct {
	// ClusterID is the provider this identity is for.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	ClusterID string `json:"clusterID,omitempty"`
	// Type says who uses the identity.
	// +optional
	Type IdentityType `json:"type,omitempty"`
	// AuthParams are the credentials.
	// +optional
	AuthParams *AuthParams `json:"authParams,omitempty"`
	// Namespace is the tenant namespace in the provider; it goes into the kubeconfig.
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// IdentityStatus is written by the controller.
type IdentityStatus struct {
	// KubeconfigSecretRef names the Secret with the kubeconfig, in the same namespace.
	// +optional
	KubeconfigSecretRef *corev1.LocalObjectReference `json:"kubeconfigSecretRef,omitempty"`
	// Conditions say whether the kubeconfig is ready and, if not, why.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Identity is a credential of this cluster (consumer) for one provider.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=identities,singular=identity,categories=liqo,shortName=id
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="KubeconfigSecret",type=string,priority=1,JSONPath=`.status.kubeconfigSecretRef.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Identity struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the credential.
	// +optional
	Spec IdentitySpec `json:"spec,omitzero"`
	// Status says where the kubeconfig is.
	// +optional
	Status IdentityStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions for reading and writing.
func (i *Identity) GetConditions() *[]metav1.Condition { return &i.Status.Conditions }

// IdentityList is a list of Identity.
// +kubebuilder:object:root=true
type IdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Identity `json:"items"`
}
