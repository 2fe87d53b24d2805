// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the requests for address space: Network asks for a CIDR, IP asks
// for one address that remote clusters can reach.
//
// Optional objects are pointers, optional lists and scalars are left out when empty.
// Status is left out when empty, so that an applied spec carries no status.
//
// +kubebuilder:object:generate=true
// +groupName=ipam.liqo.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind of this package.
var GroupVersion = schema.GroupVersion{Group: "ipam.liqo.io", Version: "v1alpha1"}

// AddToScheme registers the kinds of this package.
var AddToScheme = addKnownTypes

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&IP{}, &IPList{},
		&Network{}, &NetworkList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
