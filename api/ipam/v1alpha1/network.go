// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NetworkSpec asks for a CIDR; written by the chart, a user or a controller.
// +kubebuilder:validation:XValidation:rule="(has(self.preAllocated) ? self.preAllocated : 0) == (has(oldSelf.preAllocated) ? oldSelf.preAllocated : 0)",message="PreAllocated field is immutable",fieldPath=.preAllocated
type NetworkSpec struct {
	// CIDR is the wished CIDR. It never changes.
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="must be a CIDR"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="CIDR field is immutable"
	CIDR string `json:"cidr"`
	// PreAllocated is the number of leading addresses kept aside; 0 = none. It never changes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PreAllocated int32 `json:"preAllocated,omitempty"`
}

// NetworkStatus is the grant; written by the controller.
type NetworkStatus struct {
	// CIDR is the granted CIDR, of the wished length; another prefix than wished = remapped.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="must be a CIDR"
	CIDR string `json:"cidr,omitempty"`
	// Conditions say whether a CIDR was granted and, if not, why.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Network asks for a CIDR that overlaps with no other.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=networks,singular=network,categories=liqo,shortName=net
// +kubebuilder:printcolumn:name="Desired CIDR",type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name="Remapped CIDR",type=string,JSONPath=`.status.cidr`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Network struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the request.
	Spec NetworkSpec `json:"spec"`
	// Status is the grant.
	// +optional
	Status NetworkStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions for reading and writing.
func (n *Network) GetConditions() *[]metav1.Condition { return &n.Status.Conditions }

// NetworkList is a list of Network.
// +kubebuilder:object:root=true
type NetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Network `json:"items"`
}
