// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition type and reasons of a Configuration.
const (
	// NetworkCIDRsConfigured is True when every CIDR of the peer has a granted CIDR here.
	NetworkCIDRsConfigured = "NetworkCIDRsConfigured"
	// ReasonWaitingForNetworks: some CIDR of the peer has no granted CIDR yet.
	ReasonWaitingForNetworks = "WaitingForNetworks"
	// ReasonNetworkCIDRsConfigured: status.remote is complete.
	ReasonNetworkCIDRsConfigured = "NetworkCIDRsConfigured"
)

// ClusterConfig is the address space of one cluster.
type ClusterConfig struct {
	// CIDR lists it.
	// +optional
	CIDR ClusterCIDR `json:"cidr,omitzero"`
}

// ClusterCIDR lists the CIDRs of one cluster.
type ClusterCIDR struct {
	// Pod are the CIDRs pods get addresses from.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="must be a CIDR"
	// +kubebuilder:validation:XValidation:rule="self.all(c, self.exists_one(d, d == c))",message="must not contain duplicates"
	Pod []string `json:"pod,omitempty"`
	// External are the CIDRs of addresses that stand for something else; one entry is used.
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="must be a CIDR"
	// +kubebuilder:validation:XValidation:rule="self.all(c, self.exists_one(d, d == c))",message="must not contain duplicates"
	External []string `json:"external,omitempty"`
}

// ConfigurationSpec is the address space both sides really use.
type ConfigurationSpec struct {
	// Local is the address space of this cluster; filled by the controller when nil.
	// +optional
	Local *ClusterConfig `json:"local,omitempty"`
	// Remote is the address space of the peer, as the peer sees it.
	// +optional
	Remote *ClusterConfig `json:"remote,omitempty"`
}

// ConfigurationStatus is the peer's address space seen from here; written by the controller.
type ConfigurationStatus struct {
	// Remote holds the granted CIDRs, in the order of spec.remote, without those that have none yet; nil until granted.
	// +optional
	Remote *ClusterConfig `json:"remote,omitempty"`
	// Views say which of them stands for which of the peer's, in that order.
	// +optional
	// +kubebuilder:validation:MaxItems=128
	// +listType=map
	// +listMapKey=cidr
	Views []CIDRView `json:"views,omitempty"`
	// AgreedCIDRs lists the CIDRs that the peer announced when the peering was agreed. The controller writes it. A CIDR
	// announced later is remapped unless the annotation liqo.io/approved-cidrs names it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	// +kubebuilder:validation:items:MaxLength=49
	AgreedCIDRs []string `json:"agreedCIDRs,omitempty"`
	// Conditions say whether all CIDRs are granted.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// CIDRView is a CIDR of the peer as it is seen from here.
type CIDRView struct {
	// CIDR is the peer's own.
	// +kubebuilder:validation:MaxLength=49
	CIDR string `json:"cidr"`
	// SeenAs is the one of the same length that stands for it here; the same where nothing is remapped.
	// +kubebuilder:validation:MaxLength=49
	SeenAs string `json:"seenAs"`
}

// Configuration holds the CIDRs exchanged with one peer, named by the label liqo.io/remote-cluster-id.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=configurations,singular=configuration,categories=liqo,shortName=conf
// +kubebuilder:printcolumn:name="Desired Pod CIDR ",type=string,JSONPath=`.spec.remote.cidr.pod`
// +kubebuilder:printcolumn:name="Remapped Pod CIDR",type=string,JSONPath=`.status.remote.cidr.pod`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Desired External CIDR",type=string,priority=1,JSONPath=`.spec.remote.cidr.external`
// +kubebuilder:printcolumn:name="Remapped External CIDR",type=string,priority=1,JSONPath=`.status.remote.cidr.external`
// +kubebuilder:printcolumn:name="ClusterID",type=string,priority=1,JSONPath=`.metadata.labels.liqo\.io/remote-cluster-id`
type Configuration struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec holds the ranges of both sides.
	// +optional
	Spec ConfigurationSpec `json:"spec,omitzero"`
	// Status is how it looks from here.
	// +optional
	Status ConfigurationStatus `json:"status,omitzero"`
}

// views returns the peer's CIDRs that are seen from here, pods first. Where no controller has written them since
// there are views, as at an upgrade, the lists of spec and status say the same by position.
func (x *Configuration) views() []CIDRView {
	switch {
	case x.Spec.Remote == nil:
		return nil
	case x.Status.Views != nil || x.Status.Remote == nil:
		return x.Status.Views
	}
	for _, c := range x.Status.Conditions {
		if c.Type == NetworkCIDRsConfigured && c.ObservedGeneration != 0 && c.ObservedGeneration != x.Generation {
			return nil // of another spec
		}
	}
	var views []CIDRView
	pair := func(real, seen []string) {
		for i := range min(len(real), len(seen)) {
			views = append(views, CIDRView{real[i], seen[i]})
		}
	}
	pair(x.Spec.Remote.CIDR.Pod, x.Status.Remote.CIDR.Pod)
	pair(x.Spec.Remote.CIDR.External, x.Status.Remote.CIDR.External)
	return views
}

// GetConditions returns the conditions for reading and writing.
func (x *Configuration) GetConditions() *[]metav1.Condition { return &x.Status.Conditions }

// ConfigurationList is a list of Configuration.
// +kubebuilder:object:root=true
type ConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Configuration `json:"items"`
}
