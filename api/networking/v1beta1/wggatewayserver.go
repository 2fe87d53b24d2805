// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionTemplateReduced is True on gateways while a part of their template has no effect, which the
// message names.
const ConditionTemplateReduced = "TemplateReduced"

// Reasons of the condition TemplateReduced.
const (
	// ReasonOneContainer: the template has the original's three containers, and one does their work.
	// Nothing has to be done; remove the others and what else the message names when it is convenient.
	ReasonOneContainer = "OneContainer"
	// ReasonFlagsIgnored: flags or fields of the template are unknown, have no meaning here, or a value
	// that they do not take. Correct or remove them.
	ReasonFlagsIgnored = "FlagsIgnored"
)

// ConditionFabricRolling is True on gateways while DaemonSet liqo-fabric replaces its pods. The pods
// of the gateway are replaced afterwards, or after five minutes.
const ConditionFabricRolling = "FabricRolling"

// ReasonRolling is the reason of the condition FabricRolling: nothing has to be done.
const ReasonRolling = "Rolling"

// WgGatewayServerSpec is rendered from a template by the controller.
type WgGatewayServerSpec struct {
	// Service exposes the server.
	Service ServiceTemplate `json:"service"`
	// Deployment runs the server.
	Deployment DeploymentTemplate `json:"deployment"`
	// Metrics describes the objects to create for scraping; nil = none.
	// +optional
	Metrics *Metrics `json:"metrics,omitempty"`
	// SecretRef names the Secret with the keys; nil or empty = keys are generated.
	// +optional
	SecretRef *corev1.LocalObjectReference `json:"secretRef,omitempty"`
}

// WgGatewayServerStatus is written by the controller and copied up into GatewayServer.
type WgGatewayServerStatus struct {
	// SecretRef is the Secret with the keys.
	// +optional
	SecretRef *corev1.ObjectReference `json:"secretRef,omitempty"`
	// PublicKey is the gateway's own WireGuard key, 32 raw bytes, for the peer to follow; nil while
	// there is no valid key pair, and for technologies without one.
	// +optional
	PublicKey []byte `json:"publicKey,omitempty"`
	// Endpoint is where clients reach the server; nil until exposed.
	// +optional
	Endpoint *EndpointStatus `json:"endpoint,omitempty"`
	// InternalEndpoint is where the active gateway pod runs; nil while there is none.
	// +optional
	InternalEndpoint *InternalGatewayEndpoint `json:"internalEndpoint,omitempty"`
	// Conditions say whether the server runs and, if not, why.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WgGatewayServer is a WireGuard server rendered from a template.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=wggatewayservers,singular=wggatewayserver,categories=liqo,shortName=wgs;wggs
type WgGatewayServer struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec describes the pods to run.
	// +optional
	Spec WgGatewayServerSpec `json:"spec,omitzero"`
	// Status describes the pods that run.
	// +optional
	Status WgGatewayServerStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions for reading and writing.
func (x *WgGatewayServer) GetConditions() *[]metav1.Condition { return &x.Status.Conditions }

// WgGatewayServerList is a list of WgGatewayServer.
// +kubebuilder:object:root=true
type WgGatewayServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []WgGatewayServer `json:"items"`
}
