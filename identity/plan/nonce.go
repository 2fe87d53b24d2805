// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/base64"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/ctl"
)

// NonceSize is how many random bytes make a nonce.
const NonceSize = 64

// NonceInput is what decides the content of a nonce Secret, on either side.
type NonceInput struct {
	// Root is any Secret; those without a nonce label plan nothing.
	Root *corev1.Secret
	// Tenant tells that Root lies in a tenant namespace.
	Tenant bool
	// Random is NonceSize fresh random bytes.
	Random []byte
	// PrivateKey is the cluster's key (PEM), nil while there is none.
	PrivateKey []byte
}

// Nonce fills the challenge a provider made, and the answer a consumer gives. Neither is ever
// changed once there: the other side may have read it.
func Nonce(in NonceInput) ctl.Plan {
	root := in.Root
	if root.DeletionTimestamp != nil || !in.Tenant {
		return ctl.Plan{}
	}
	switch {
	case root.Labels[api.LabelNonce] == "true" && len(root.Data[api.NonceField]) == 0:
		return fillSecret(root, api.NonceField, []byte(base64.StdEncoding.EncodeToString(in.Random)))
	case root.Labels[api.LabelSignedNonce] == "true" && len(root.Data[api.NonceField]) > 0 && len(root.Data[api.SignedNonceField]) == 0:
		return signedNonce(in)
	}
	return ctl.Plan{}
}

func signedNonce(in NonceInput) ctl.Plan {
	if len(in.PrivateKey) == 0 {
		return ctl.Wait(ReasonKeysNotFound, "the cluster's key pair is not there yet; check that the controller runs in the Liqo namespace")
	}
	key, err := ParsePrivateKey(in.PrivateKey)
	if err != nil {
		return ctl.Block(ReasonInvalid, "%v; delete Secret %s in the Liqo namespace and restart the controller", err, api.AuthenticationKeysSecret)
	}
	signature, err := Sign(key, in.Root.Data[api.NonceField])
	if err != nil {
		return ctl.Block(ReasonInvalid, "%v; delete Secret %s in the Liqo namespace and restart the controller", err, api.AuthenticationKeysSecret)
	}
	return fillSecret(in.Root, api.SignedNonceField, signature)
}

func fillSecret(root *corev1.Secret, field string, value []byte) ctl.Plan {
	filled := root.DeepCopy()
	if filled.Data == nil {
		filled.Data = map[string][]byte{}
	}
	filled.Data[field] = value
	return ctl.Plan{Fill: filled}
}
