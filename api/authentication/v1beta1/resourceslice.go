// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/liqo-go/liqo/api"
)

// ResourceSliceConditionType is one of the two answers of a provider, Replicated, or a standard condition.
// +kubebuilder:validation:Enum=Authentication;Resources;Replicated;Ready;Reconciling;Stalled
type ResourceSliceConditionType string

// Answers of a provider.
const (
	// ResourceSliceAuthentication: credentials for the slice.
	ResourceSliceAuthentication ResourceSliceConditionType = "Authentication"
	// ResourceSliceResources: resources of the slice.
	ResourceSliceResources ResourceSliceConditionType = "Resources"
)

// ResourceSliceReplicated is False, and only then present, at a consumer whose provider refuses the slice
// or a change of it: one that has drained this cluster, for example. The last answers stand beside it.
const ResourceSliceReplicated ResourceSliceConditionType = "Replicated"

// Reasons of conditions that other rooms read.
const (
	// ReasonSliceCordoned on an accepted Resources: the provider takes nothing new, of this slice or of its
	// consumer; its administrator undoes it, as the message says.
	ReasonSliceCordoned = "ResourceSliceCordoned"
	// ReasonProviderRefuses on Replicated and Ready, and on Stalled of a NamespaceMap: the provider's API
	// server refuses the slice or the map. The message says why; its administrator can help.
	ReasonProviderRefuses = "ProviderRefuses"
)

// ResourceSliceConditionStatus is the value of an answer, True or False of a standard condition.
// +kubebuilder:validation:Enum=Accepted;Denied;True;False
type ResourceSliceConditionStatus string

// Values of answers.
const (
	ResourceSliceAccepted ResourceSliceConditionStatus = "Accepted"
	ResourceSliceDenied   ResourceSliceConditionStatus = "Denied"
	// ResourceSliceFalse is a value of Replicated and of standard conditions.
	ResourceSliceFalse ResourceSliceConditionStatus = "False"
)

// ResourceSliceCondition is one answer of the provider, or a standard condition.
type ResourceSliceCondition struct {
	// Type is the question answered.
	Type ResourceSliceConditionType `json:"type"`
	// Status is the answer.
	Status ResourceSliceConditionStatus `json:"status"`
	// LastTransitionTime is when Status changed last.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`
	// Reason is a word for machines.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is text for people.
	// +optional
	Message string `json:"message,omitempty"`
	// ObservedGeneration is the generation of the spec that the condition is about. An answer with a lower one
	// is about an earlier request; 0 in one that does not say.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// StorageType is a storage class the provider offers.
type StorageType struct {
	// StorageClassName is the class at the provider.
	StorageClassName string `json:"storageClassName"`
	// Default marks the class used when none is named.
	// +optional
	Default bool `json:"default,omitempty"`
}

// IngressType is an ingress class the provider offers.
type IngressType struct {
	// IngressClassName is the class at the provider.
	IngressClassName string `json:"ingressClassName"`
	// Default marks the class used when none is named.
	// +optional
	Default bool `json:"default,omitempty"`
}

// LoadBalancerType is a load balancer class the provider offers.
type LoadBalancerType struct {
	// LoadBalancerClassName is the class at the provider.
	LoadBalancerClassName string `json:"loadBalancerClassName"`
	// Default marks the class used when none is named.
	// +optional
	Default bool `json:"default,omitempty"`
}

// ResourceSliceSpec asks for resources; written at the consumer.
type ResourceSliceSpec struct {
	// ConsumerClusterID is the cluster that asks; filled by the consumer's controller.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	ConsumerClusterID string `json:"consumerClusterID,omitempty"`
	// ProviderClusterID is the cluster that is asked; filled by the consumer's controller
	// from the label liqo.io/remote-cluster-id or the namespace.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	ProviderClusterID string `json:"providerClusterID,omitempty"`
	// Class decides which controller at the provider grants resources; empty = default.
	// +optional
	Class string `json:"class,omitempty"`
	// Resources are the wanted amounts; for a missing key the provider takes its default.
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// CSR is the signing request (PEM) of the slice; filled by the consumer's controller.
	// +optional
	CSR []byte `json:"csr,omitempty"`
}

// UnmarshalJSON bounds the amounts, which the consumer writes: see api.DecodeBounded.
func (s *ResourceSliceSpec) UnmarshalJSON(text []byte) error {
	type plain ResourceSliceSpec
	return api.DecodeBounded(text, (*plain)(s))
}

// maxArchitectures is the number of architectures that the schema of NodeFacts accepts.
const maxArchitectures = 16

// NodeFacts describes the provider's nodes on which the pods of a ResourceSlice may run. The provider writes it.
type NodeFacts struct {
	// DeclaredFeatures lists the kubelet features that all these nodes declare and that Liqo supports for
	// offloaded pods (api.CarriedFeatures), sorted; empty = none, or not reported.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	DeclaredFeatures []string `json:"declaredFeatures,omitempty"`
	// Architectures lists the CPU architectures of these nodes, such as amd64, sorted; empty = not reported.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`
	Architectures []string `json:"architectures,omitempty"`
	// KernelVersion is set if all these nodes run the same kernel; empty = they differ, or not reported.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	KernelVersion string `json:"kernelVersion,omitempty"`
	// OSImage is set if all these nodes run the same operating system; empty = they differ, or not reported.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	OSImage string `json:"osImage,omitempty"`
}

// Bounded returns what the schema accepts of facts that others write: the features that Liqo carries, the
// architectures that may be values of labels, and printable texts.
func (f *NodeFacts) Bounded() *NodeFacts {
	if f == nil {
		return nil
	}
	architectures := slices.DeleteFunc(slices.Clone(f.Architectures), func(a string) bool {
		return a == "" || len(validation.IsValidLabelValue(a)) > 0
	})
	return &NodeFacts{
		DeclaredFeatures: api.CarriedFeatures(f.DeclaredFeatures),
		Architectures:    architectures[:min(len(architectures), maxArchitectures)],
		KernelVersion:    api.Printable(f.KernelVersion),
		OSImage:          api.Printable(f.OSImage),
	}
}

// ResourceSliceStatus is the answer; written by the provider.
type ResourceSliceStatus struct {
	// Conditions are the answers, Authentication and Resources, and the standard ones, which each side writes
	// for itself: Ready at the consumer when the virtual node is, at the provider when both answers are
	// Accepted. Replicated is there while the provider refuses the slice.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []ResourceSliceCondition `json:"conditions,omitempty"`
	// Resources are the granted amounts.
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`
	// StorageClasses are offered to the consumer.
	// +optional
	StorageClasses []StorageType `json:"storageClasses,omitempty"`
	// IngressClasses are offered to the consumer.
	// +optional
	IngressClasses []IngressType `json:"ingressClasses,omitempty"`
	// LoadBalancerClasses are offered to the consumer.
	// +optional
	LoadBalancerClasses []LoadBalancerType `json:"loadBalancerClasses,omitempty"`
	// NodeLabels go onto the virtual node: the provider's cluster labels.
	// +optional
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`
	// NodeSelector is enforced on offloaded pods at the provider.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Node describes the provider's nodes; nil = it does not tell, as the original never does.
	// +optional
	Node *NodeFacts `json:"node,omitempty"`
	// AuthParams are the credentials of the slice.
	// +optional
	AuthParams *AuthParams `json:"authParams,omitempty"`
}

// UnmarshalJSON bounds the amounts, which the provider writes: see api.DecodeBounded.
func (s *ResourceSliceStatus) UnmarshalJSON(text []byte) error {
	type plain ResourceSliceStatus
	return api.DecodeBounded(text, (*plain)(s))
}

// ResourceSlice asks a provider for resources; replicated from consumer to provider.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=resourceslices,singular=resourceslice,categories=liqo,shortName=rslice
// +kubebuilder:printcolumn:name="Authentication",type=string,JSONPath=`.status.conditions[?(@.type=="Authentication")].status`
// +kubebuilder:printcolumn:name="Resources",type=string,JSONPath=`.status.conditions[?(@.type=="Resources")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceSlice struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec is the request.
	// +optional
	Spec ResourceSliceSpec `json:"spec,omitzero"`
	// Status is the answer.
	// +optional
	Status ResourceSliceStatus `json:"status,omitzero"`
}

// HasStandardConditions reports whether the conditions hold standard ones: those of a slice asked for here do, and of a
// copy whose consumer says that it knows them. The schema of another consumer would refuse the whole answer.
func (x *ResourceSlice) HasStandardConditions() bool {
	return x.Labels[api.LabelReplicated] != api.True ||
		slices.Contains(strings.Split(x.Annotations[api.AnnotationFeatures], ","), api.FeatureStandardConditions)
}

// ResourceSliceList is a list of ResourceSlice.
// +kubebuilder:object:root=true
type ResourceSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []ResourceSlice `json:"items"`
}
