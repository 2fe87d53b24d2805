// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/base64"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// NonceSize is the number of random bytes in a nonce.
const NonceSize = 64

// NonceInput is the input for the content of a nonce Secret, on either side.
type NonceInput struct {
	// Root is any Secret; those without a nonce label plan nothing.
	Root *corev1.Secret
	// Tenant is true if Root is in a tenant namespace.
	Tenant bool
	// Tenants are those of Root's namespace.
	Tenants []authv1beta1.Tenant
	// Random is NonceSize fresh random bytes.
	Random []byte
	// Keys holds the private keys for the peer of Root's namespace.
	Keys Keys
}

// Nonce fills the provider's challenge and the consumer's answer. An answer changes only if it was
// signed with another key. A challenge changes once a Tenant was admitted with it, so an old Tenant
// that others kept admits nobody.
func Nonce(in NonceInput) desired.Plan {
	root := in.Root
	if root.DeletionTimestamp != nil || !in.Tenant {
		return desired.Plan{}
	}
	switch {
	case root.Labels[api.LabelNonce] == "true" && (len(root.Data[api.NonceField]) == 0 || in.spent()):
		return fillSecret(root, api.NonceField, []byte(base64.StdEncoding.EncodeToString(in.Random)))
	case root.Labels[api.LabelSignedNonce] == "true" && len(root.Data[api.NonceField]) > 0:
		return signedNonce(in)
	}
	return desired.Plan{}
}

// spent reports whether a Tenant was admitted with the challenge.
func (in NonceInput) spent() bool {
	return slices.ContainsFunc(in.Tenants, func(t authv1beta1.Tenant) bool {
		return Issued(&t) && answers(&t, in.Root.Data[api.NonceField])
	})
}

// signedNonce signs only texts that can be a challenge. The key also authenticates this cluster
// where others choose the signed text, as in TLS.
func signedNonce(in NonceInput) desired.Plan {
	if !IsNonce(in.Root.Data[api.NonceField]) {
		return desired.Block(ReasonInvalid, "%s is no nonce, which is the base64 text of %d bytes; delete this "+
			"Secret and sign what 'liqoctl get nonce' prints at the provider",
			api.NonceField, NonceSize)
	}
	if len(in.Keys.Own) == 0 {
		return withoutKey()
	}
	key, err := ParsePrivateKey(in.Keys.Own)
	if err != nil {
		return unreadable(err, in.Root.Namespace)
	}
	signature, err := Sign(key, in.Root.Data[api.NonceField])
	if err != nil {
		return unreadable(err, in.Root.Namespace)
	}
	return fillSecret(in.Root, api.SignedNonceField, signature)
}

// IsNonce reports whether a text can be a challenge.
func IsNonce(text []byte) bool {
	random, err := base64.StdEncoding.DecodeString(string(text))
	return err == nil && len(random) == NonceSize
}

func fillSecret(root *corev1.Secret, field string, value []byte) desired.Plan {
	filled := root.DeepCopy()
	if filled.Data == nil {
		filled.Data = map[string][]byte{}
	}
	filled.Data[field] = value
	return desired.Plan{Fill: filled}
}
