// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identity authenticates peers and grants them rights: a key pair per peer, the handshake
// with nonce and signature, Tenants and their certificates, Identities and their kubeconfigs, and
// the authentication and resources of ResourceSlices.
//
// It only reads objects, creates keys and nonces, and registers controllers. Every decision is in
// package plan. It copies nothing between clusters, and runs no virtual node.
//
// Start reading at Controllers.
package identity

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/ctl"
)

// Options are the settings of this cluster that matter to its peers.
type Options struct {
	// ClusterID is this cluster's ID.
	ClusterID string
	// LiqoNamespace holds the key pairs.
	LiqoNamespace string
	// ClusterLabels are set on the virtual nodes that stand for this cluster.
	ClusterLabels map[string]string
	// Tell says what consumers are told about this cluster's nodes.
	Tell plan.Tell
	// DefaultNodeResources are granted for the resources a slice does not name.
	DefaultNodeResources corev1.ResourceList
	IngressClasses       []authv1beta1.IngressType
	LoadBalancerClasses  []authv1beta1.LoadBalancerType
	// DefaultLimitsEnforcement is the limits enforcement of every Quota.
	DefaultLimitsEnforcement offv1beta1.LimitsEnforcement
	// Ceilings bound what consumers are granted.
	Ceilings plan.Ceilings
	// DefaultResourceSliceClassEnabled grants slices of the default class; false = they are denied.
	DefaultResourceSliceClassEnabled bool
	// StorageEnabled offers this cluster's storage classes.
	StorageEnabled bool
	// RealStorageClass is the class offered as default; empty = the cluster's own default.
	RealStorageClass string
	// TLSCompatibility uses RSA keys instead of Ed25519.
	TLSCompatibility bool
	// APIServerAddress is the URL by which peers reach the API server; empty = that of a
	// control-plane node.
	APIServerAddress string
	// CA is the PEM bundle with which peers verify the API server: the one that the user set, or
	// that of this process. Peers do not get it if TrustedCA is set.
	CA        []byte
	TrustedCA bool
	// CertificateLifetime is requested for certificates of consumers; 0 = the signer chooses.
	CertificateLifetime time.Duration
}

// Controllers returns the controllers of this room.
func Controllers(o Options) []ctl.Registrar {
	return []ctl.Registrar{
		keyPair{o},
		o.peerKeys(),
		o.nonces(),
		o.tenants(),
		approve(),
		o.identities(),
		o.slices(),
		o.renews(),
		certificateStart(),
		certificateEnd(),
	}
}

// offer returns what this cluster offers to every consumer of the default class.
func (o Options) offer() plan.Offer {
	return plan.Offer{
		Defaults: o.DefaultNodeResources, DefaultClass: o.DefaultResourceSliceClassEnabled,
		IngressClasses: o.IngressClasses, LoadBalancerClasses: o.LoadBalancerClasses,
		NodeLabels: o.ClusterLabels, StorageClass: o.RealStorageClass, Enforcement: o.DefaultLimitsEnforcement,
		Ceilings: o.Ceilings, Tell: o.Tell,
	}
}
