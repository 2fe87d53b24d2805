// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// InternalNodeSpec is the overlay end of one node; written by the controller.
type InternalNodeSpec struct {
	// Interface names the device and its address.
	Interface InternalNodeInterface `json:"interface"`
	// PodCIDRs are the addresses of the pods on this node: its ranges, or one host
	// prefix for each pod where ranges do not hold. Pods in the host network are left out.
	// +optional
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="must be a CIDR"
	PodCIDRs []string `json:"podCIDRs,omitempty"`
	// ProtectedIPs are the addresses of pods on this node to which no peer may open a connection: those of Liqo and of
	// the namespaces that the chart names.
	// +optional
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="must be an IP address"
	ProtectedIPs []string `json:"protectedIPs,omitempty"`
}

// InternalNodeInterface is the overlay device of a node seen from both ends.
type InternalNodeInterface struct {
	// Gateway is the end in the gateways.
	Gateway InternalNodeGatewayInterface `json:"gateway"`
	// Node is the end on the node.
	Node InternalNodeNodeInterface `json:"node"`
}

// InternalNodeGatewayInterface is the end in the gateways.
type InternalNodeGatewayInterface struct {
	// Name is the device in the gateways.
	// 15 = IFNAMSIZ - 1 (linux/if.h).
	// +kubebuilder:validation:MaxLength=15
	Name string `json:"name"`
}

// InternalNodeNodeInterface is the end on the node.
type InternalNodeNodeInterface struct {
	// IP is the address of the node in the overlay, from the internal CIDR.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IP address"
	IP string `json:"ip"`
}

// NodeIP is the outer address of the overlay on one node.
type NodeIP struct {
	// Local is the address a gateway on the same node sees.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IP address"
	Local string `json:"local,omitempty"`
	// Remote is the address a gateway on another node sees.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IP address"
	Remote string `json:"remote,omitempty"`
}

// InternalNodeStatus is where the node is, and which addresses it depends on.
type InternalNodeStatus struct {
	// NodeIP is the outer address of the node; written by the controller.
	NodeIP NodeIP `json:"nodeIP"`
	// LocalAddresses are the addresses of the node, each with the length of the network it is connected to, and
	// those of its default gateways and DNS servers. No peer is seen there. Written by the fabric of the node.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="must be an address with a prefix length"
	LocalAddresses []string `json:"localAddresses,omitempty"`
}

// InternalNode is a node as gateways see it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=internalnodes,singular=internalnode,categories=liqo,shortName=in;inode
// +kubebuilder:printcolumn:name="Node IP Local",type=string,JSONPath=`.status.nodeIP.local`
// +kubebuilder:printcolumn:name="Node IP Remote",type=string,JSONPath=`.status.nodeIP.remote`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type InternalNode struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is its overlay end.
	// +optional
	Spec InternalNodeSpec `json:"spec,omitzero"`
	// Status is its outer address.
	// +optional
	Status InternalNodeStatus `json:"status,omitzero"`
}

// InternalNodeList is a list of InternalNode.
// +kubebuilder:object:root=true
type InternalNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []InternalNode `json:"items"`
}
