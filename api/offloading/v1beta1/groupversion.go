// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 holds the kinds of offloading: what a user asks for (NamespaceOffloading),
// how a provider looks as a node (VirtualNode), and what a provider is asked to run
// (NamespaceMap, ShadowPod, ShadowEndpointSlice, bounded by Quota).
//
// Optional objects are pointers, optional lists and scalars are left out when empty.
// Status is left out when empty, so that an applied spec carries no status.
//
// +kubebuilder:object:generate=true
// +groupName=offloading.liqo.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind of this package.
var GroupVersion = schema.GroupVersion{Group: "offloading.liqo.io", Version: "v1beta1"}

// AddToScheme registers the kinds of this package.
var AddToScheme = addKnownTypes

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&NamespaceMap{}, &NamespaceMapList{},
		&NamespaceOffloading{}, &NamespaceOffloadingList{},
		&Quota{}, &QuotaList{},
		&ShadowEndpointSlice{}, &ShadowEndpointSliceList{},
		&ShadowPod{}, &ShadowPodList{},
		&VirtualNode{}, &VirtualNodeList{},
		&VkOptionsTemplate{}, &VkOptionsTemplateList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
