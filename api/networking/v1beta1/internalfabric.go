// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InternalFabricSpec is the overlay end of one gateway; written by the controller.
type InternalFabricSpec struct {
	// MTU is the MTU of the overlay device in bytes; 0 = the default.
	// +optional
	MTU int `json:"mtu,omitempty"`
	// RemoteCIDRs are the CIDRs nodes send to this gateway.
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="must be a CIDR"
	RemoteCIDRs []string `json:"remoteCIDRs,omitempty"`
	// Interface names the device and its address.
	Interface InternalFabricInterface `json:"interface"`
	// GatewayIP is the address of the active gateway pod: the outer address of the overlay. 0.0.0.0 = there is none.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IP address"
	GatewayIP string `json:"gatewayIP"`
	// StandbyIPs are the addresses of the gateway's other pods. Nodes accept frames of the overlay from them also, so
	// that no rule has to change before another pod becomes active.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="must be an IP address"
	StandbyIPs []string `json:"standbyIPs,omitempty"`
}

// InternalFabricInterface is the overlay device of a gateway seen from both ends.
type InternalFabricInterface struct {
	// Node is the end on the nodes.
	Node InternalFabricNodeInterface `json:"node"`
	// Gateway is the end in the gateway.
	Gateway InternalFabricGatewayInterface `json:"gateway"`
}

// InternalFabricNodeInterface is the end on the nodes.
type InternalFabricNodeInterface struct {
	// Name is the device on the nodes.
	// 15 = IFNAMSIZ - 1 (linux/if.h).
	// +kubebuilder:validation:MaxLength=15
	Name string `json:"name"`
}

// InternalFabricGatewayInterface is the end in the gateway.
type InternalFabricGatewayInterface struct {
	// IP is the address of the gateway in the overlay, from the internal CIDR.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IP address"
	IP string `json:"ip"`
}

// InternalFabricStatus is written by nodes that cannot do what the gateway needs.
type InternalFabricStatus struct {
	// Conditions hold what a node's kernel refuses, by host; none of a node where all is well.
	// +optional
	// +listType=map
	// +listMapKey=host
	// +listMapKey=type
	Conditions []HostCondition `json:"conditions,omitempty"`
}

// InternalFabric is a gateway as nodes see it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=internalfabrics,singular=internalfabric,categories=liqo,shortName=if;ifabric
// +kubebuilder:printcolumn:name="Gateway IP",type=string,JSONPath=`.spec.gatewayIP`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type InternalFabric struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is its overlay end.
	// +optional
	Spec InternalFabricSpec `json:"spec,omitzero"`
	// Status reports nodes that could not apply it.
	// +optional
	Status InternalFabricStatus `json:"status,omitzero"`
}

// InternalFabricList is a list of InternalFabric.
// +kubebuilder:object:root=true
type InternalFabricList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []InternalFabric `json:"items"`
}
