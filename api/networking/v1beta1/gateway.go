// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// Protocol is the transport of a tunnel.
// +kubebuilder:validation:Enum=TCP;UDP
type Protocol string

// Transports of a tunnel.
const (
	ProtocolTCP Protocol = "TCP"
	ProtocolUDP Protocol = "UDP"
)

// EndpointStatus is where a gateway server is reached from outside.
// +kubebuilder:validation:XValidation:rule="!(has(self.port) && has(self.ports))",message="port and ports are mutually exclusive"
// +kubebuilder:validation:XValidation:rule="has(self.port) || (has(self.ports) && size(self.ports) > 0)",message="at least one of port or ports must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.ports) || self.ports.all(p, self.ports.exists_one(q, q == p))",message="ports must not contain duplicates"
type EndpointStatus struct {
	// Addresses are IPs or DNS names; the first that works is used.
	// +optional
	Addresses []string `json:"addresses,omitempty"`
	// Port is the only port; absent = see Ports.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 65535",message="must be a port between 1 and 65535"
	Port int32 `json:"port,omitempty"`
	// Ports are several ports, one parallel tunnel each; excludes Port.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:XValidation:rule="self >= 1 && self <= 65535",message="must be a port between 1 and 65535"
	Ports []int32 `json:"ports,omitempty"`
	// Protocol is the transport; empty = UDP.
	// +optional
	Protocol Protocol `json:"protocol,omitempty"`
}

// InternalGatewayEndpoint is where the active gateway pod runs.
type InternalGatewayEndpoint struct {
	// IP is the address of the pod.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IP address"
	IP string `json:"ip,omitempty"`
	// Node is the node of the pod.
	// +optional
	Node string `json:"node,omitempty"`
	// StandbyIPs are the addresses of the gateway's other pods: replicas that may become active, and pods that end.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:XValidation:rule="isIP(self)",message="must be an IP address"
	StandbyIPs []string `json:"standbyIPs,omitempty"`
}
