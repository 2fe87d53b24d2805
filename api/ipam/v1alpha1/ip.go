// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServiceTemplate is a Service to create.
type ServiceTemplate struct {
	// ObjectMeta holds name, labels and annotations of the Service.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// Spec is the Service: its ports.
	// +optional
	Spec corev1.ServiceSpec `json:"spec,omitzero"`
}

// IPSpec asks for one address; written by a user or a controller.
type IPSpec struct {
	// IP is the address of this cluster to make reachable. It never changes.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IP address"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="IP field is immutable"
	IP string `json:"ip"`
	// NetworkRef is the Network to take the address from; nil = the external CIDR.
	// +optional
	NetworkRef *corev1.ObjectReference `json:"networkRef,omitempty"`
	// ServiceTemplate, if set, is a Service of the same name made for the remapped address.
	// +optional
	ServiceTemplate *ServiceTemplate `json:"serviceTemplate,omitempty"`
	// Masquerade gives traffic the gateway's own source, so that the target needs no way back.
	// +optional
	Masquerade bool `json:"masquerade,omitempty"`
}

// IPStatus is the grant; written by the controller.
type IPStatus struct {
	// IP is the address remote clusters use. It never changes once set.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IP address"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="IP field is immutable"
	IP string `json:"ip,omitempty"`
	// CIDR is the network the address was taken from. It never changes once set.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="must be a CIDR"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="CIDR field is immutable"
	CIDR string `json:"cidr,omitempty"`
	// Conditions say whether an address was granted and, if not, why.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// IP is one address made reachable for remote clusters.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=ips,singular=ip,categories=liqo
// +kubebuilder:printcolumn:name="Local IP",type=string,JSONPath=`.spec.ip`
// +kubebuilder:printcolumn:name="Remapped IP",type=string,JSONPath=`.status.ip`
// +kubebuilder:printcolumn:name="Remapped IP CIDR",type=string,JSONPath=`.status.cidr`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type IP struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the request.
	Spec IPSpec `json:"spec"`
	// Status is the grant.
	// +optional
	Status IPStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions for reading and writing.
func (i *IP) GetConditions() *[]metav1.Condition { return &i.Status.Conditions }

// IPList is a list of IP.
// +kubebuilder:object:root=true
type IPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []IP `json:"items"`
}
