// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 holds the kinds of the network between two peers: exchanged CIDRs,
// gateways and their templates, tunnels, the overlay inside a cluster, firewall and
// route content. Start reading at GatewayServer and Configuration.
//
// Optional objects are pointers, optional lists and scalars are left out when empty.
// Status is left out when empty, so that an applied spec carries no status.
//
// +kubebuilder:object:generate=true
// +groupName=networking.liqo.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind of this package.
var GroupVersion = schema.GroupVersion{Group: "networking.liqo.io", Version: "v1beta1"}

// AddToScheme registers the kinds of this package.
var AddToScheme = addKnownTypes

func addKnownTypes(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&Configuration{}, &ConfigurationList{},
		&Connection{}, &ConnectionList{},
		&FirewallConfiguration{}, &FirewallConfigurationList{},
		&GatewayClient{}, &GatewayClientList{},
		&GatewayServer{}, &GatewayServerList{},
		&InternalFabric{}, &InternalFabricList{},
		&InternalNode{}, &InternalNodeList{},
		&PublicKey{}, &PublicKeyList{},
		&RouteConfiguration{}, &RouteConfigurationList{},
		&WgGatewayClient{}, &WgGatewayClientList{},
		&WgGatewayClientTemplate{}, &WgGatewayClientTemplateList{},
		&WgGatewayServer{}, &WgGatewayServerList{},
		&WgGatewayServerTemplate{}, &WgGatewayServerTemplateList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
