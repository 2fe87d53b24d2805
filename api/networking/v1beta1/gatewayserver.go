// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Endpoint is how a gateway server is exposed.
// +kubebuilder:validation:XValidation:rule="!(has(self.port) && has(self.ports))",message="port and ports are mutually exclusive"
// +kubebuilder:validation:XValidation:rule="has(self.port) || (has(self.ports) && size(self.ports) > 0)",message="at least one of port or ports must be set"
// +kubebuilder:validation:XValidation:rule="!has(self.ports) || self.ports.all(p, self.ports.exists_one(q, q == p))",message="ports must not contain duplicates"
// +kubebuilder:validation:XValidation:rule="!(has(self.nodePort) && has(self.nodePorts))",message="nodePort and nodePorts are mutually exclusive"
// +kubebuilder:validation:XValidation:rule="!has(self.nodePorts) || self.nodePorts.all(p, self.nodePorts.exists_one(q, q == p))",message="nodePorts must not contain duplicates"
// +kubebuilder:validation:XValidation:rule="!has(self.nodePorts) || (has(self.ports) && size(self.nodePorts) == size(self.ports))",message="nodePorts must have one entry for each of ports"
type Endpoint struct {
	// Port is the only listen port; absent = see Ports.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 65535",message="must be a port between 1 and 65535"
	Port int32 `json:"port,omitempty"`
	// Ports are several listen ports, one parallel tunnel each; excludes Port.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:XValidation:rule="self >= 1 && self <= 65535",message="must be a port between 1 and 65535"
	Ports []int32 `json:"ports,omitempty"`
	// ServiceType is the type of the Service.
	// +optional
	// +kubebuilder:default=ClusterIP
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer;ExternalName
	ServiceType corev1.ServiceType `json:"serviceType,omitempty"`
	// NodePort is the wished node port; 0 = any.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 65535",message="must be a port between 1 and 65535"
	NodePort int32 `json:"nodePort,omitempty"`
	// NodePorts are the wished node ports, one for each of Ports; excludes NodePort.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:XValidation:rule="self >= 1 && self <= 65535",message="must be a port between 1 and 65535"
	NodePorts []int32 `json:"nodePorts,omitempty"`
	// LoadBalancerIP is the wished address of the load balancer; empty = any.
	// +optional
	LoadBalancerIP string `json:"loadBalancerIP,omitempty"`
	// Protocol is the transport of the tunnel; empty = UDP, or what the template's Service says. TCP
	// is for networks that block UDP; clients need the same.
	// +optional
	Protocol Protocol `json:"protocol,omitempty"`
}

// GatewayServerSpec asks for a tunnel server; written by liqoctl or a user.
type GatewayServerSpec struct {
	// ServerTemplateRef is the template to render.
	// +optional
	ServerTemplateRef *corev1.ObjectReference `json:"serverTemplateRef,omitempty"`
	// MTU is the MTU of the tunnel in bytes; 0 = the default. At least 576, which every IPv4 path
	// carries; at most 65455, for WireGuard adds 80.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == 0 || (self >= 576 && self <= 65455)",message="must be between 576 and 65455 bytes, or absent for the default of 1340"
	MTU int `json:"mtu,omitempty"`
	// Endpoint is how the server is exposed.
	// +optional
	Endpoint *Endpoint `json:"endpoint,omitempty"`
	// SecretRef names a Secret with own keys; nil = keys are generated.
	// +optional
	SecretRef *corev1.LocalObjectReference `json:"secretRef,omitempty"`
	// ServiceAnnotations are added to the Service and win over the template.
	// +optional
	ServiceAnnotations map[string]string `json:"serviceAnnotations,omitempty"`
	// ServiceLabels are added to the Service and win over the template.
	// +optional
	ServiceLabels map[string]string `json:"serviceLabels,omitempty"`
}

// GatewayServerStatus is written by the controller.
type GatewayServerStatus struct {
	// ServerRef is the object rendered from the template.
	// +optional
	ServerRef *corev1.ObjectReference `json:"serverRef,omitempty"`
	// Endpoint is where clients reach the server; nil until exposed.
	// +optional
	Endpoint *EndpointStatus `json:"endpoint,omitempty"`
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
	// Conditions say whether the server runs and, if not, why.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// GatewayServer asks for the server end of a tunnel.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=gatewayservers,singular=gatewayserver,categories=liqo,shortName=gws;gwserver
// +kubebuilder:printcolumn:name="Template Kind",type=string,priority=1,JSONPath=`.spec.serverTemplateRef.kind`
// +kubebuilder:printcolumn:name="Template Name",type=string,JSONPath=`.spec.serverTemplateRef.name`
// +kubebuilder:printcolumn:name="Template Namespace",type=string,priority=1,JSONPath=`.spec.serverTemplateRef.namespace`
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.status.endpoint.addresses[*]`
// +kubebuilder:printcolumn:name="Port",type=string,JSONPath=`.status.endpoint['port','ports']`
// +kubebuilder:printcolumn:name="Protocol",type=string,priority=1,JSONPath=`.status.endpoint.protocol`
// +kubebuilder:printcolumn:name="MTU",type=integer,priority=1,JSONPath=`.spec.mtu`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GatewayServer struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the request.
	// +optional
	Spec GatewayServerSpec `json:"spec,omitzero"`
	// Status is where the server is.
	// +optional
	Status GatewayServerStatus `json:"status,omitzero"`
}

// OtherTechnology tells whether the server was rendered as an object of a kind that is not Liqo's, and then whether
// it runs: its pods are of no Deployment that Liqo knows.
func (x *GatewayServer) OtherTechnology() (other, runs bool) {
	return otherTechnology(x.Status.ServerRef, x.Status.InternalEndpoint)
}

func otherTechnology(rendered *corev1.ObjectReference, at *InternalGatewayEndpoint) (other, runs bool) {
	other = rendered != nil && rendered.APIVersion != GroupVersion.String()
	return other, other && at != nil
}

// GetConditions returns the conditions for reading and writing.
func (x *GatewayServer) GetConditions() *[]metav1.Condition { return &x.Status.Conditions }

// GatewayServerList is a list of GatewayServer.
// +kubebuilder:object:root=true
type GatewayServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []GatewayServer `json:"items"`
}
