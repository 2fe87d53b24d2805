// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package identity answers who the other cluster is and what it may do: a key
// pair per peer, the handshake with nonce and signature, Tenants and their certificates, Identities and
// their kubeconfigs, and the authentication and resources of ResourceSlices.
//
// It only reads objects, draws randomness and registers controllers; every decision is in
// package plan. It does not copy anything between clusters and runs no virtual node.
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
	// ClusterLabels go onto the virtual nodes that stand for this cluster.
	ClusterLabels map[string]string
	// DefaultNodeResources are granted for the resources a slice does not name.
	DefaultNodeResources corev1.ResourceList
	IngressClasses       []authv1beta1.IngressType
	LoadBalancerClasses  []authv1beta1.LoadBalancerType
	// DefaultLimitsEnforcement goes into every Quota.
	DefaultLimitsEnforcement offv1beta1.LimitsEnforcement
	// Ceilings bound what consumers are granted.
	Ceilings plan.Ceilings
	// DefaultResourceSliceClassEnabled off denies slices of the default class.
	DefaultResourceSliceClassEnabled bool
	// StorageEnabled offers this cluster's storage classes.
	StorageEnabled bool
	// RealStorageClass is the class offered as default; empty = the cluster's own default.
	RealStorageClass string
	// TLSCompatibility makes the cluster's keys RSA instead of Ed25519.
	TLSCompatibility bool
	// APIServerAddress is the URL peers reach the API server at; empty = that of a
	// control-plane node.
	APIServerAddress string
	// CA is the PEM bundle peers check the API server with: the override of the user, or the
	// one this process itself uses. It is not handed out when TrustedCA is set.
	CA        []byte
	TrustedCA bool
	// CertificateLifetime is asked of the signer for certificates of consumers; 0 leaves it to the signer.
	CertificateLifetime time.Duration
}

// Controllers lists everything of this room that runs in the controller role.
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
	}
}

// offer returns what this cluster offers to every consumer of the default class.
func (o Options) offer() plan.Offer {
	return plan.Offer{
		Defaults: o.DefaultNodeResources, DefaultClass: o.DefaultResourceSliceClassEnabled,
		IngressClasses: o.IngressClasses, LoadBalancerClasses: o.LoadBalancerClasses,
		NodeLabels: o.ClusterLabels, StorageClass: o.RealStorageClass, Enforcement: o.DefaultLimitsEnforcement,
		Ceilings: o.Ceilings,
	}
}
