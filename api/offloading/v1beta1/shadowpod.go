// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
)

// ShadowPodSpec is written by the consumer's virtual kubelet.
type ShadowPodSpec struct {
	// Pod is the pod to run. The API server checks it when the pod is made of it: checking and
	// tracking each of its fields here, too, would double the cost of every write (measured).
	// +optional
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +mapType=atomic
	Pod corev1.PodSpec `json:"pod,omitzero"`
}

// UnmarshalJSON bounds the quantities of the pod: see api.DecodeBounded.
func (s *ShadowPodSpec) UnmarshalJSON(text []byte) error {
	type plain ShadowPodSpec
	return api.DecodeBounded(text, (*plain)(s))
}

// ShadowPodStatus is written by the controller.
type ShadowPodStatus struct {
	// Phase is the phase of the pod.
	// +kubebuilder:default=Unknown
	// +kubebuilder:validation:Required
	// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed;Unknown
	Phase corev1.PodPhase `json:"phase,omitempty"`
	// Conditions say whether the pod was created and, if not, why.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ShadowPod is a pod a consumer wants to run here. It outlives an absent consumer.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=shadowpods,singular=shadowpod,categories=liqo,shortName=shp;shpod
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ShadowPod struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec defines the desired state.
	// +optional
	Spec ShadowPodSpec `json:"spec,omitzero"`
	// Status describes the pod that runs.
	// +optional
	Status ShadowPodStatus `json:"status,omitzero"`
}

// GetConditions returns the conditions for reading and writing.
func (x *ShadowPod) GetConditions() *[]metav1.Condition { return &x.Status.Conditions }

// ShadowPodList is a list of ShadowPod.
// +kubebuilder:object:root=true
type ShadowPodList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ShadowPod `json:"items"`
}
