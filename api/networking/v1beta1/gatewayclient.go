// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GatewayClientSpec asks for a tunnel client; written by liqoctl or a user.
type GatewayClientSpec struct {
	// ClientTemplateRef is the template to render.
	// +optional
	ClientTemplateRef *corev1.ObjectReference `json:"clientTemplateRef,omitempty"`
	// MTU is the MTU of the tunnel in bytes; 0 = the default. At least 576, which every IPv4 path
	// carries; at most 65455, for WireGuard adds 80.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == 0 || (self >= 576 && self <= 65455)",message="must be between 576 and 65455 bytes, or absent for the default of 1340"
	MTU int `json:"mtu,omitempty"`
	// Endpoint is the server to dial.
	// +optional
	Endpoint *EndpointStatus `json:"endpoint,omitempty"`
	// SecretRef names a Secret with own keys; nil = keys are generated.
	// +optional
	SecretRef *corev1.LocalObjectReference `json:"secretRef,omitempty"`
}

// GatewayClientStatus is written by the controller.
type GatewayClientStatus struct {
	// ClientRef is the object rendered from the template.
	// +optional
	ClientRef *corev1.ObjectReference `json:"clientRef,omitempty"`
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

// GatewayClient asks for the client end of a tunnel.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=gatewayclients,singular=gatewayclient,categories=liqo,shortName=gwc;gwclient
// +kubebuilder:printcolumn:name="Template Kind",type=string,priority=1,JSONPath=`.spec.clientTemplateRef.kind`
// +kubebuilder:printcolumn:name="Template Name",type=string,JSONPath=`.spec.clientTemplateRef.name`
// +kubebuilder:printcolumn:name="Template Namespace",type=string,priority=1,JSONPath=`.spec.clientTemplateRef.namespace`
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.spec.endpoint.addresses[*]`
// +kubebuilder:printcolumn:name="Port",type=string,JSONPath=`.spec.endpoint['port','ports']`
// +kubebuilder:printcolumn:name="Protocol",type=string,priority=1,JSONPath=`.spec.endpoint.protocol`
// +kubebuilder:printcolumn:name="MTU",type=integer,priority=1,JSONPath=`.spec.mtu`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GatewayClient struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the request.
	// +optional
	Spec GatewayClientSpec `json:"spec,omitzero"`
	// Status is where the client is.
	// +optional
	Status GatewayClientStatus `json:"status,omitzero"`
}

// OtherTechnology tells of a client what it does of a server.
func (x *GatewayClient) OtherTechnology() (other, runs bool) {
	return otherTechnology(x.Status.ClientRef, x.Status.InternalEndpoint)
}

// GetConditions returns the conditions for reading and writing.
func (x *GatewayClient) GetConditions() *[]metav1.Condition { return &x.Status.Conditions }

// GatewayClientList is a list of GatewayClient.
// +kubebuilder:object:root=true
type GatewayClientList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []GatewayClient `json:"items"`
}
