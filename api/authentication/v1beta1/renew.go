// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RenewSpec asks for a fresh certificate; written by the consumer's controller.
type RenewSpec struct {
	// ConsumerClusterID is the cluster that asks.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	ConsumerClusterID string `json:"consumerClusterID,omitempty"`
	// PublicKey is the key of the asking cluster (PEM, PKIX).
	// +optional
	PublicKey []byte `json:"publicKey,omitempty"`
	// CSR is the signing request (PEM), with the subject of the expiring certificate.
	// +optional
	CSR []byte `json:"csr,omitempty"`
	// IdentityType is ControlPlane or ResourceSlice.
	// +optional
	IdentityType string `json:"identityType,omitempty"`
	// ResourceSliceRef names the slice whose identity is renewed; nil for ControlPlane.
	// +optional
	ResourceSliceRef *corev1.LocalObjectReference `json:"resourceSliceRef,omitempty"`
}

// RenewStatus is the answer; written by the provider.
type RenewStatus struct {
	// AuthParams are the fresh credentials.
	// +optional
	AuthParams *AuthParams `json:"authParams,omitempty"`
}

// Renew asks a provider to renew a certificate; replicated from consumer to provider.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=renews,singular=renew,categories=liqo
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Renew struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the request.
	// +optional
	Spec RenewSpec `json:"spec,omitzero"`
	// Status is the answer.
	// +optional
	Status RenewStatus `json:"status,omitzero"`
}

// RenewList is a list of Renew.
// +kubebuilder:object:root=true
type RenewList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Renew `json:"items"`
}
