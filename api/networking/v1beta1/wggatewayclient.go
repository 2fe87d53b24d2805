// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WgGatewayClientSpec is rendered from a template by the controller.
type WgGatewayClientSpec struct {
	// Deployment runs the client.
	Deployment DeploymentTemplate `json:"deployment"`
	// Metrics describes the objects to create for scraping; nil = none.
	// +optional
	Metrics *Metrics `json:"metrics,omitempty"`
	// SecretRef names the Secret with the keys; nil or empty = keys are generated.
	// +optional
	SecretRef *corev1.LocalObjectReference `json:"secretRef,omitempty"`
}

// WgGatewayClientStatus is written by the controller and copied up into GatewayClient.
type WgGatewayClientStatus struct {
	// SecretRef is the Secret with the keys.
	// +optional
	SecretRef *corev1.ObjectReference `json:"secretRef,omitempty"`
	// PublicKey is the gateway's own WireGuard key, 32 raw bytes, for the peer to follow; nil while
	// there is no valid key pair, and for technologies without one.
	// +optional
	PublicKey []byte `json:"publicKey,omitempty"`
	// InternalEndpoint is where the active gateway pod runs; nil while there is none.
	// +optional
	InternalEndpoint *InternalGatewayEndpoint `json:"internalEndpoint,omitempty"`
	// Conditions say whether the client runs and, if not, why.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WgGatewayClient is a WireGuard client rendered from a template.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=wggatewayclients,singular=wggatewayclient,categories=liqo,shortName=wgc;wggc
type WgGatewayClient struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec describes the pods to run.
	// +optional
	Spec WgGatewayClientSpec `json:"spec,omitzero"`
	// Status describes the pods that run.
	// +optional
	Status WgGatewayClientStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions for reading and writing.
func (x *WgGatewayClient) GetConditions() *[]metav1.Condition { return &x.Status.Conditions }

// WgGatewayClientList is a list of WgGatewayClient.
// +kubebuilder:object:root=true
type WgGatewayClientList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []WgGatewayClient `json:"items"`
}
