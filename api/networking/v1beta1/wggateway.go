// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DeploymentTemplate is a Deployment to create.
type DeploymentTemplate struct {
	// ObjectMeta holds name, labels and annotations.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// Spec is the Deployment.
	// +optional
	Spec appsv1.DeploymentSpec `json:"spec,omitzero"`
}

// ServiceTemplate is a Service to create.
type ServiceTemplate struct {
	// ObjectMeta holds name, labels and annotations.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// Spec is the Service.
	// +optional
	Spec corev1.ServiceSpec `json:"spec,omitzero"`
}

// ServiceMonitorTemplate is a ServiceMonitor to create.
type ServiceMonitorTemplate struct {
	// ObjectMeta holds name, labels and annotations.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`
	// Spec is a monitoring.coreos.com/v1 ServiceMonitorSpec, passed on as it is.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec runtime.RawExtension `json:"spec,omitzero"`
}

// Metrics describes the objects to create so that metrics are scraped.
type Metrics struct {
	// Enabled creates the Service.
	Enabled bool `json:"enabled"`
	// Service to create; nil = none.
	// +optional
	Service *ServiceTemplate `json:"service,omitempty"`
	// ServiceMonitor is accepted and not made; a condition says so.
	// +optional
	ServiceMonitor *ServiceMonitorTemplate `json:"serviceMonitor,omitempty"`
}
