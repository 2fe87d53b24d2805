// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConnectionType is the side of the tunnel in this cluster.
// +kubebuilder:validation:Enum=Server;Client
type ConnectionType string

// Sides of a tunnel.
const (
	ConnectionTypeServer ConnectionType = "Server"
	ConnectionTypeClient ConnectionType = "Client"
)

// ConnectionMTUFits is the condition that tells whether packets as long as the tunnel takes them get
// to the peer.
const ConnectionMTUFits = "MTUFits"

// ConnectionGatewayRunning is the condition by which the controller says that this cluster's gateway has no
// ready pod: False, with what the pods lack. A gateway that runs answers with True: a pod is not ready either
// while the kubelet of its node hangs. The last transition is the controller's in both.
const ConnectionGatewayRunning = "GatewayRunning"

// ConnectionProgrammed is the condition that is False while the kernel refuses what the gateway wants of
// it; it is absent otherwise.
const ConnectionProgrammed = "Programmed"

// ConnectionPortsAnswer is the condition that tells, where a tunnel has several ports, whether the peer
// answers on all of them. While it does not on one, the others carry everything.
const ConnectionPortsAnswer = "PortsAnswer"

// ConnectionStatusValue is the state of a tunnel. The schema has no enum for it.
type ConnectionStatusValue string

// States of a tunnel.
const (
	// Connected: pings are answered.
	Connected ConnectionStatusValue = "Connected"
	// Connecting: no ping was answered yet.
	Connecting ConnectionStatusValue = "Connecting"
	// ConnectionError: pings are no longer answered, or this cluster's gateway does not run.
	ConnectionError ConnectionStatusValue = "Error"
)

// ConnectionLatency is one measure of the round trip.
type ConnectionLatency struct {
	// Value is the round trip as text, such as 1.2ms.
	// +optional
	Value string `json:"value,omitempty"`
	// Timestamp is the time of the measure.
	// +optional
	Timestamp metav1.Time `json:"timestamp,omitzero"`
}

// ConnectionSpec says whose tunnel it is; written by the gateway.
type ConnectionSpec struct {
	// Type is the side of the tunnel in this cluster.
	Type ConnectionType `json:"type"`
	// GatewayRef is the WgGatewayServer or WgGatewayClient of the tunnel.
	GatewayRef corev1.ObjectReference `json:"gatewayRef"`
}

// ConnectionStatus is the state of the tunnel; written by the gateway, and by the controller while
// that does not run.
type ConnectionStatus struct {
	// Value is Connected, Connecting or Error; empty before the first look.
	// +optional
	Value ConnectionStatusValue `json:"value,omitempty"`
	// Latency is the last measure; nil before the first answer.
	// +optional
	Latency *ConnectionLatency `json:"latency,omitempty"`
	// Conditions say why the tunnel is in this state.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Connection is the state of one tunnel.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=connections,singular=connection,categories=liqo,shortName=conn
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.value`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Latency",type=string,priority=1,JSONPath=`.status.latency.value`
type Connection struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec says whose tunnel it is.
	// +optional
	Spec ConnectionSpec `json:"spec,omitzero"`
	// Status is its state.
	// +optional
	Status ConnectionStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions for reading and writing.
func (x *Connection) GetConditions() *[]metav1.Condition { return &x.Status.Conditions }

// ConnectionList is a list of Connection.
// +kubebuilder:object:root=true
type ConnectionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Connection `json:"items"`
}
