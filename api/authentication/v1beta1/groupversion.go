// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 holds the kinds by which a consumer is admitted at a provider and gets
// credentials and resources: Tenant (provider side), Identity (consumer side),
// ResourceSlice and Renew (replicated from consumer to provider).
//
// Optional objects are pointers, optional lists and scalars are left out when empty.
// Status is left out when empty, so that an applied spec carries no status.
//
// +kubebuilder:object:generate=true
// +groupName=authentication.liqo.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind of this package.
var GroupVersion = schema.GroupVersion{Group: "authentication.liqo.io", Version: "v1beta1"}

// AddToScheme registers the kinds of this package.
var AddToScheme = addKnownTypes

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Identity{}, &IdentityList{},
		&Renew{}, &RenewList{},
		&ResourceSlice{}, &ResourceSliceList{},
		&Tenant{}, &TenantList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
