// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PublicKeySpec holds the key; written by liqoctl or a user.
type PublicKeySpec struct {
	// PublicKey is the WireGuard key of the tunnel peer: 32 raw bytes, which are 44 characters of
	// base64. Without one a gateway is blocked, and says so.
	//
	// As of format byte CEL would take it for base64 of the URL alphabet (kube-openapi, strfmt.Base64).
	// +optional
	// +kubebuilder:validation:Format=""
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9+/]{43}=$')",message="must be a public key of WireGuard, 32 bytes in base64: take what 'liqoctl generate publickey' prints in the other cluster"
	PublicKey []byte `json:"publicKey,omitempty"`
}

// PublicKey is the WireGuard key of the other end of a tunnel.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=publickeies,singular=publickey,categories=liqo,shortName=pk;pkies;pkey
type PublicKey struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// Spec holds the key.
	// +optional
	Spec PublicKeySpec `json:"spec,omitzero"`
}

// PublicKeyList is a list of PublicKey.
// +kubebuilder:object:root=true
type PublicKeyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []PublicKey `json:"items"`
}
