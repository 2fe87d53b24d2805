// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
)

// VirtualNodeConditionType is a part of a virtual node, or a standard condition.
// +kubebuilder:validation:Enum=VirtualKubelet;Node;Ready;Reconciling;Stalled
type VirtualNodeConditionType string

// Parts of a virtual node.
const (
	// VirtualKubeletCondition: its process.
	VirtualKubeletCondition VirtualNodeConditionType = "VirtualKubelet"
	// NodeCondition: its Node object.
	NodeCondition VirtualNodeConditionType = "Node"
)

// VirtualNodeConditionStatus is the state of a part, True or False of a standard condition.
// +kubebuilder:validation:Enum=None;Running;Creating;Draining;Deleting;True;False
type VirtualNodeConditionStatus string

// States of a part.
const (
	VirtualNodeNone     VirtualNodeConditionStatus = "None"
	VirtualNodeRunning  VirtualNodeConditionStatus = "Running"
	VirtualNodeCreating VirtualNodeConditionStatus = "Creating"
	VirtualNodeDraining VirtualNodeConditionStatus = "Draining"
	VirtualNodeDeleting VirtualNodeConditionStatus = "Deleting"
)

// VirtualNodeCondition is the state of one part, or a standard condition.
type VirtualNodeCondition struct {
	// Type is the part.
	Type VirtualNodeConditionType `json:"type"`
	// Status is its state.
	// +kubebuilder:default=None
	// +kubebuilder:validation:Required
	Status VirtualNodeConditionStatus `json:"status,omitempty"`
	// LastTransitionTime is when Status changed last.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Reason is a word for machines.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is text for people.
	// +optional
	Message string `json:"message,omitempty"`
	// ObservedGeneration is the generation of the spec that a standard condition (Ready, Reconciling,
	// Stalled) is about; 0 in others.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// DeploymentTemplate is a Deployment to create.
type DeploymentTemplate struct {
	// ObjectMeta holds name, labels and annotations.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// Spec is the Deployment.
	// +optional
	Spec appsv1.DeploymentSpec `json:"spec,omitzero"`
}

// Affinity is the part of an affinity that crosses clusters.
type Affinity struct {
	// NodeAffinity is merged into the remote pod.
	// +optional
	NodeAffinity *corev1.NodeAffinity `json:"nodeAffinity,omitempty"`
}

// OffloadingPatch changes every offloaded pod.
type OffloadingPatch struct {
	// NodeSelector is merged into the remote pod.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Tolerations are added to the remote pod.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Affinity is merged into the remote pod.
	// +optional
	Affinity *Affinity `json:"affinity,omitempty"`
	// RuntimeClassName is the runtime class of the remote pod; nil = as the pod says.
	// +optional
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`
	// LabelsNotReflected are label keys that are dropped.
	// +optional
	LabelsNotReflected []string `json:"labelsNotReflected,omitempty"`
	// AnnotationsNotReflected are annotation keys that are dropped.
	// +optional
	AnnotationsNotReflected []string `json:"annotationsNotReflected,omitempty"`
}

// VirtualNodeSpec is written by the controller out of a ResourceSlice, or by a user.
type VirtualNodeSpec struct {
	// ClusterID is the provider.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	ClusterID string `json:"clusterID,omitempty"`
	// CreateNode makes a Node; false = reflect only; nil = as the options template says.
	// +optional
	CreateNode *bool `json:"createNode,omitempty"`
	// DisableNetworkCheck makes the Node ready without a tunnel; nil = as the options
	// template says.
	// +optional
	DisableNetworkCheck *bool `json:"disableNetworkCheck,omitempty"`
	// KubeconfigSecretRef names the Secret by which the virtual kubelet enters the provider.
	// +optional
	KubeconfigSecretRef *corev1.LocalObjectReference `json:"kubeconfigSecretRef,omitempty"`
	// VkOptionsTemplateRef is the options template; nil = virtual-kubelet-default in the
	// install namespace.
	// +optional
	VkOptionsTemplateRef *corev1.ObjectReference `json:"vkOptionsTemplateRef,omitempty"`
	// Template is the Deployment of the virtual kubelet; nil = made from the options template.
	// +optional
	Template *DeploymentTemplate `json:"template,omitempty"`
	// ResourceQuota is the capacity of the Node, in Hard.
	// +optional
	ResourceQuota corev1.ResourceQuotaSpec `json:"resourceQuota,omitzero"`
	// Labels of the Node.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the Node.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// Taints of the Node, besides Liqo's own.
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Images the Node announces.
	// +optional
	Images []corev1.ContainerImage `json:"images,omitempty"`
	// Node describes the provider's nodes, for the status of the Node; nil = not known.
	// +optional
	Node *authv1beta1.NodeFacts `json:"node,omitempty"`
	// StorageClasses the provider offers.
	// +optional
	StorageClasses []authv1beta1.StorageType `json:"storageClasses,omitempty"`
	// IngressClasses the provider offers.
	// +optional
	IngressClasses []authv1beta1.IngressType `json:"ingressClasses,omitempty"`
	// LoadBalancerClasses the provider offers.
	// +optional
	LoadBalancerClasses []authv1beta1.LoadBalancerType `json:"loadBalancerClasses,omitempty"`
	// OffloadingPatch changes every offloaded pod; nil = nothing.
	// +optional
	OffloadingPatch *OffloadingPatch `json:"offloadingPatch,omitempty"`
}

// VirtualNodeStatus is written by the controller.
type VirtualNodeStatus struct {
	// Conditions are the states of the parts, and the standard ones: Ready when all parts are.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []VirtualNodeCondition `json:"conditions,omitempty"`
}

// VirtualNode is a provider as a node of this cluster; its name is the name of the Node.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=virtualnodes,singular=virtualnode,categories=liqo,shortName=vn;vnode;virno;vno
// +kubebuilder:printcolumn:name="ClusterID",type=string,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Create Node",type=boolean,JSONPath=`.spec.createNode`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Node",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Node")].status`
// +kubebuilder:printcolumn:name="VirtualKubelet",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="VirtualKubelet")].status`
type VirtualNode struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the node.
	// +optional
	Spec VirtualNodeSpec `json:"spec,omitzero"`
	// Status is the state of its parts.
	// +optional
	Status VirtualNodeStatus `json:"status,omitzero"`
}

// HasStandardConditions reports whether the conditions hold standard ones, as they do in every VirtualNode.
func (*VirtualNode) HasStandardConditions() bool { return true }

// VirtualNodeList is a list of VirtualNode.
// +kubebuilder:object:root=true
type VirtualNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []VirtualNode `json:"items"`
}
