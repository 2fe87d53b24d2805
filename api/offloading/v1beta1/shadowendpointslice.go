// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EndpointSliceTemplate is an EndpointSlice to create.
type EndpointSliceTemplate struct {
	// AddressType is the kind of addresses.
	// +optional
	AddressType discoveryv1.AddressType `json:"addressType,omitempty"`
	// Endpoints of the slice.
	// +optional
	Endpoints []discoveryv1.Endpoint `json:"endpoints,omitempty"`
	// Ports of the slice.
	// +optional
	Ports []discoveryv1.EndpointPort `json:"ports,omitempty"`
}

// ShadowEndpointSliceSpec is written by the consumer's virtual kubelet.
type ShadowEndpointSliceSpec struct {
	// Template is the EndpointSlice.
	// +optional
	Template EndpointSliceTemplate `json:"template,omitzero"`
}

// ShadowEndpointSlice is an EndpointSlice a consumer wants here.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=shadowendpointslices,singular=shadowendpointslice,categories=liqo,shortName=shes;sheps;seps
type ShadowEndpointSlice struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec defines the desired state.
	// +optional
	Spec ShadowEndpointSliceSpec `json:"spec,omitzero"`
}

// ShadowEndpointSliceList is a list of ShadowEndpointSlice.
// +kubebuilder:object:root=true
type ShadowEndpointSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ShadowEndpointSlice `json:"items"`
}
