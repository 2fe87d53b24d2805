// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LimitsEnforcement says what a pod must declare to be counted against a quota.
// +kubebuilder:validation:Enum=Hard;Soft;None
type LimitsEnforcement string

// What a pod must declare. Requests are summed and bounded in all three cases.
const (
	// HardLimitsEnforcement: requests of CPU and memory, and limits equal to all requests.
	HardLimitsEnforcement LimitsEnforcement = "Hard"
	// SoftLimitsEnforcement: requests of CPU and memory.
	SoftLimitsEnforcement LimitsEnforcement = "Soft"
	// NoLimitsEnforcement: nothing; what is not requested counts as 0.
	NoLimitsEnforcement LimitsEnforcement = "None"
)

// QuotaSpec bounds one remote user; written by the controller.
type QuotaSpec struct {
	// User is the user name (certificate CN) that is bound.
	// +kubebuilder:validation:MinLength=1
	User string `json:"user"`
	// LimitsEnforcement says what pods must declare; empty = None.
	// +optional
	LimitsEnforcement LimitsEnforcement `json:"limitsEnforcement,omitempty"`
	// Resources are the bounds.
	Resources corev1.ResourceList `json:"resources"`
	// Cordoned refuses new ShadowPods of the user.
	// +optional
	Cordoned bool `json:"cordoned,omitempty"`
}

// Quota bounds what one remote user may run here; one for each accepted slice.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=quotas,singular=quota,categories=liqo,shortName=qt
// +kubebuilder:printcolumn:name="Enforcement",type=string,JSONPath=`.spec.limitsEnforcement`
// +kubebuilder:printcolumn:name="Cordoned",type=boolean,JSONPath=`.spec.cordoned`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="User",type=string,priority=1,JSONPath=`.spec.user`
type Quota struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the bound.
	Spec QuotaSpec `json:"spec"`
}

// QuotaList is a list of Quota.
// +kubebuilder:object:root=true
type QuotaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Quota `json:"items"`
}
