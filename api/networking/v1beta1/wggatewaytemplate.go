// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ObjectKind is the kind of object to render.
type ObjectKind struct {
	// APIVersion is group/version.
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`
	// Kind in that group.
	// +optional
	Kind string `json:"kind,omitempty"`
}

// WgGatewayServerTemplateSpec is written by the chart or a user.
type WgGatewayServerTemplateSpec struct {
	// ObjectKind is the kind to render, WgGatewayServer.
	// +optional
	ObjectKind *ObjectKind `json:"objectKind,omitempty"`
	// Template is the object to render: {metadata, spec}, kept as it is written. Its strings
	// may be Go templates, its keys may start with "?".
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Template runtime.RawExtension `json:"template,omitzero"`
}

// WgGatewayServerTemplate is a template of WgGatewayServer.
// +kubebuilder:metadata:labels="networking.liqo.io/gatewaytemplate=true"
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=wggatewayservertemplates,singular=wggatewayservertemplate,categories=liqo,shortName=wggst;wgst
type WgGatewayServerTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the template.
	// +optional
	Spec WgGatewayServerTemplateSpec `json:"spec,omitzero"`
}

// WgGatewayServerTemplateList is a list of WgGatewayServerTemplate.
// +kubebuilder:object:root=true
type WgGatewayServerTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []WgGatewayServerTemplate `json:"items"`
}

// WgGatewayClientTemplateSpec is written by the chart or a user.
type WgGatewayClientTemplateSpec struct {
	// ObjectKind is the kind to render, WgGatewayClient.
	// +optional
	ObjectKind *ObjectKind `json:"objectKind,omitempty"`
	// Template is the object to render: {metadata, spec}, kept as it is written. Its strings
	// may be Go templates, its keys may start with "?".
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Template runtime.RawExtension `json:"template,omitzero"`
}

// WgGatewayClientTemplate is a template of WgGatewayClient.
// +kubebuilder:metadata:labels="networking.liqo.io/gatewaytemplate=true"
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=wggatewayclienttemplates,singular=wggatewayclienttemplate,categories=liqo,shortName=wggct;wgct
type WgGatewayClientTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the template.
	// +optional
	Spec WgGatewayClientTemplateSpec `json:"spec,omitzero"`
}

// WgGatewayClientTemplateList is a list of WgGatewayClientTemplate.
// +kubebuilder:object:root=true
type WgGatewayClientTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []WgGatewayClientTemplate `json:"items"`
}
