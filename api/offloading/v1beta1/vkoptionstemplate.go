// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ReflectionType says which objects of a kind are reflected.
type ReflectionType string

// Which objects are reflected.
const (
	// AllowListReflection: those annotated liqo.io/allow-reflection.
	AllowListReflection ReflectionType = "AllowList"
	// DenyListReflection: all but those annotated liqo.io/skip-reflection.
	DenyListReflection ReflectionType = "DenyList"
	// CustomLiqoReflection: the kind has rules of its own.
	CustomLiqoReflection ReflectionType = "CustomLiqo"
)

// ReflectorConfig tunes the reflection of one kind.
type ReflectorConfig struct {
	// Workers is how many objects are handled at once; 0 switches the kind off.
	// +kubebuilder:validation:Minimum=0
	Workers int `json:"workers"`
	// Type says which objects are reflected; empty = the kind's default.
	// +optional
	Type ReflectionType `json:"type,omitempty"`
	// Kind of a custom resource; its key is <plural>.<version>.<group>.
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Kind string `json:"kind,omitempty"`
}

// IsAllowList reports whether only objects annotated for it are reflected.
func (r ReflectorConfig) IsAllowList() bool { return r.Type == AllowListReflection }

// Keys of reflectors that are no custom resources: the kinds in lower case. The rule of ReflectorsConfig repeats them.
const (
	ReflectPod            = "pod"
	ReflectServiceAccount = "serviceaccount"
	ReflectService        = "service"
	ReflectEndpointSlice  = "endpointslice"
	ReflectConfigMap      = "configmap"
	ReflectSecret         = "secret"
	ReflectIngress        = "ingress"
	ReflectEvent          = "event"
	ReflectClaim          = "persistentvolumeclaim"
)

// DefaultReflectors returns the defaults of the virtual kubelet's flags by key. A remote pod does not start without its
// tokens, which cost two requests where the pod costs one. Measured with 200 pods at once: 3 workers write tokens up to
// 0.8 s after the ShadowPod (its kubelet reports FailedMount and retries later), 10 workers at most 0.1 s after it.
func DefaultReflectors() map[string]ReflectorConfig {
	deny := ReflectorConfig{Workers: 3, Type: DenyListReflection}
	return map[string]ReflectorConfig{
		ReflectPod: {Workers: 10}, ReflectEndpointSlice: {Workers: 10}, ReflectServiceAccount: {Workers: 10},
		ReflectClaim:   {Workers: 3},
		ReflectService: deny, ReflectConfigMap: deny, ReflectSecret: deny, ReflectIngress: deny, ReflectEvent: deny,
	}
}

// VkOptionsTemplateSpec is written by the chart or a user.
type VkOptionsTemplateSpec struct {
	// CreateNode is the default of VirtualNode.spec.createNode.
	CreateNode bool `json:"createNode"`
	// DisableNetworkCheck is the default of VirtualNode.spec.disableNetworkCheck.
	DisableNetworkCheck bool `json:"disableNetworkCheck"`
	// ContainerImage of the virtual kubelet.
	ContainerImage string `json:"containerImage"`
	// PullPolicy of the image; empty = the API server's default.
	// +optional
	PullPolicy corev1.PullPolicy `json:"pullPolicy,omitempty"`
	// ImagePullSecrets of the pod.
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// MetricsEnabled serves metrics.
	MetricsEnabled bool `json:"metricsEnabled"`
	// MetricsAddress is the listen address of the metrics, such as :5872.
	// +optional
	MetricsAddress string `json:"metricsAddress,omitempty"`
	// LabelsNotReflected are label keys that are dropped on reflection.
	// +optional
	LabelsNotReflected []string `json:"labelsNotReflected,omitempty"`
	// AnnotationsNotReflected are annotation keys that are dropped on reflection.
	// +optional
	AnnotationsNotReflected []string `json:"annotationsNotReflected,omitempty"`
	// ReflectorsConfig by kind: pod, service, endpointslice, ingress, configmap, secret,
	// serviceaccount, persistentvolumeclaim, event; by <plural>.<version>.<group> for a custom
	// resource.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k in ['pod','serviceaccount','service','endpointslice','ingress','configmap','secret','event','persistentvolumeclaim'] || has(self[k].kind) && k.matches('^[a-z0-9-]+[.]v[a-z0-9]+[.][a-z0-9.-]+$'))",message="a key is pod, serviceaccount, service, endpointslice, ingress, configmap, secret, event, persistentvolumeclaim or, together with a kind, <plural>.<version>.<group> of a custom resource"
	// +optional
	ReflectorsConfig map[string]ReflectorConfig `json:"reflectorsConfig,omitempty"`
	// Resources of the container.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
	// ExtraArgs of the container.
	// +optional
	ExtraArgs []string `json:"extraArgs,omitempty"`
	// ExtraLabels of the pod.
	// +optional
	ExtraLabels map[string]string `json:"extraLabels,omitempty"`
	// ExtraAnnotations of the pod.
	// +optional
	ExtraAnnotations map[string]string `json:"extraAnnotations,omitempty"`
	// NodeExtraLabels of the Node.
	// +optional
	NodeExtraLabels map[string]string `json:"nodeExtraLabels,omitempty"`
	// NodeExtraAnnotations of the Node.
	// +optional
	NodeExtraAnnotations map[string]string `json:"nodeExtraAnnotations,omitempty"`
	// Tolerations of the pod.
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Replicas of the virtual kubelet; nil = 1; more than one elect a leader.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
}

// VkOptionsTemplate holds the defaults of virtual kubelets.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=vkoptionstemplates,singular=vkoptionstemplate,categories=liqo,shortName=vkot;vkopt
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VkOptionsTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the defaults.
	// +optional
	Spec VkOptionsTemplateSpec `json:"spec,omitzero"`
}

// VkOptionsTemplateList is a list of VkOptionsTemplate.
// +kubebuilder:object:root=true
type VkOptionsTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []VkOptionsTemplate `json:"items"`
}
