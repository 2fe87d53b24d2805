// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

const (
	pemPrivateKey = "PRIVATE KEY"
	pemPublicKey  = "PUBLIC KEY"

	// minRSABits is the least RSA key accepted from a peer: NIST SP 800-131A.
	minRSABits = 2048
	// maxRSABits bounds the work a peer can make us do with one signature.
	maxRSABits = 8192
)

// Keys holds the private keys (PEM) that this cluster may use in a tenant namespace. The peering
// user of the peer can read every Secret in that namespace.
type Keys struct {
	// Own is the key for this peer only; nil until it is created.
	Own []byte
	// Shared is the key that former versions used for all peers; nil if there is none.
	Shared []byte
}

// inUse returns the key to use with a certificate: Shared if the certificate is for Shared and one
// of the kubeconfigs in the tenant namespace already holds it, else Own. The certificate alone must
// not decide, because the provider issues it and could choose Shared.
func (k Keys) inUse(p *authv1beta1.AuthParams, kubeconfigs []corev1.Secret) []byte {
	if k.usesShared(p, kubeconfigs) {
		return k.Shared
	}
	return k.Own
}

// usesShared reports whether inUse returns Shared.
func (k Keys) usesShared(p *authv1beta1.AuthParams, kubeconfigs []corev1.Secret) bool {
	shared, err := ParsePrivateKey(k.Shared)
	return err == nil && certificateFor(p, shared) != nil && hold(kubeconfigs, shared)
}

// hold reports whether one of the kubeconfigs contains the private key.
func hold(kubeconfigs []corev1.Secret, key crypto.Signer) bool {
	return slices.ContainsFunc(kubeconfigs, func(s corev1.Secret) bool {
		var config struct {
			Users []struct {
				User struct {
					Key []byte `json:"client-key-data"`
				}
			}
		}
		if yaml.Unmarshal(s.Data[api.KubeconfigField], &config) != nil {
			return false
		}
		for _, u := range config.Users {
			if has, err := ParsePrivateKey(u.User.Key); err == nil && sameKey(has.Public(), key.Public()) {
				return true
			}
		}
		return false
	})
}

// appendSecret returns a copy of list with s appended; list itself if s is nil.
func appendSecret(list []corev1.Secret, s *corev1.Secret) []corev1.Secret {
	if s == nil {
		return list
	}
	return append(slices.Clone(list), *s)
}

// IssuedFor reports whether credentials hold a certificate for a public key (PEM).
func IssuedFor(p *authv1beta1.AuthParams, public []byte) bool {
	key, err := ParsePublicKey(public)
	if err != nil {
		return false
	}
	certificate, err := ParseCertificate(Held(p))
	return err == nil && sameKey(key, certificate.PublicKey)
}

// unreadable blocks because Own cannot be parsed, and tells the user how to replace it.
func unreadable(err error, tenantNamespace string) desired.Plan {
	return desired.Block(ReasonInvalid, "%v; delete Secret %s in the Liqo namespace, then run 'liqoctl authenticate' "+
		"again", err, api.PeerKeysSecretName(tenantNamespace))
}

// PeerKeysInput is the input of PeerKeys.
type PeerKeysInput struct {
	// Root is a tenant namespace.
	Root *corev1.Namespace
	// Name is the name of the Secret with the key pair.
	Name types.NamespacedName
	// Keys is the current Secret; nil if there is none.
	Keys *corev1.Secret
	// NewKey is a newly generated key; nil if Keys is set.
	NewKey crypto.Signer
}

// PeerKeys plans the key pair for the peer of a tenant namespace. An existing key is preserved. The
// Secret is deleted with the namespace, unless another controller owns it.
func PeerKeys(in PeerKeysInput) desired.Plan {
	if in.Root.DeletionTimestamp != nil {
		return desired.Plan{}
	}
	key, err := in.NewKey, error(nil)
	if in.Keys != nil {
		if owner := metav1.GetControllerOf(in.Keys); owner != nil && owner.UID != in.Root.UID {
			return desired.Plan{} // another controller manages the Secret
		}
		key, err = ParsePrivateKey(in.Keys.Data[api.PrivateKeyField])
	}
	if err != nil {
		return unreadable(err, in.Root.Name)
	}
	secret, err := KeySecret(in.Name, key)
	if err != nil {
		return unreadable(err, in.Root.Name)
	}
	return desired.Plan{Objects: []desired.Object{secret}}
}

// KeySecret returns a Secret with a key pair.
func KeySecret(name types.NamespacedName, key crypto.Signer) (*corev1.Secret, error) {
	private, err := EncodePrivateKey(key)
	if err != nil {
		return nil, err
	}
	public, err := EncodePublicKey(key.Public())
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name},
		Data:       map[string][]byte{api.PrivateKeyField: private, api.PublicKeyField: public},
	}, err
}

var errSignature = errors.New("signature does not match")

// EncodePrivateKey returns the key as PKCS#8 PEM.
func EncodePrivateKey(key crypto.Signer) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPrivateKey, Bytes: der}), nil
}

// EncodePublicKey returns the key as PKIX PEM.
func EncodePublicKey(key crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPublicKey, Bytes: der}), nil
}

// ParsePrivateKey reads a PKCS#8 PEM key of a type that can sign.
func ParsePrivateKey(data []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != pemPrivateKey {
		return nil, errors.New("parse private key: not a PEM block PRIVATE KEY")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse private key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("parse private key: %T cannot sign", key)
	}
	return signer, checkPublicKey(signer.Public())
}

// ParsePublicKey reads a PKIX PEM key, or the 32 raw bytes of an Ed25519 key.
func ParsePublicKey(data []byte) (crypto.PublicKey, error) {
	if len(data) == ed25519.PublicKeySize {
		return ed25519.PublicKey(data), nil
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != pemPublicKey {
		return nil, errors.New("parse public key: neither a PEM block PUBLIC KEY nor a raw Ed25519 key")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse public key: %w", err)
	}
	return key, checkPublicKey(key)
}

// checkPublicKey refuses key types and sizes that cannot be trusted.
func checkPublicKey(key crypto.PublicKey) error {
	switch key := key.(type) {
	case ed25519.PublicKey, *ecdsa.PublicKey:
		return nil
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSABits || bits > maxRSABits {
			return fmt.Errorf("check public key: RSA key of %d bits, want %d to %d", bits, minRSABits, maxRSABits)
		}
		return nil
	default:
		return fmt.Errorf("check public key: %T is neither Ed25519, RSA nor ECDSA", key)
	}
}

// Sign signs message: Ed25519 plainly, RSA by PKCS#1 v1.5 and ECDSA in ASN.1, both over SHA-256.
// All three are deterministic, ECDSA by RFC 6979.
func Sign(key crypto.Signer, message []byte) ([]byte, error) {
	options, digest := crypto.Hash(0), message
	if _, plain := key.(ed25519.PrivateKey); !plain {
		sum := sha256.Sum256(message)
		options, digest = crypto.SHA256, sum[:]
	}
	signature, err := key.Sign(nil, digest, options)
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	return signature, nil
}

// Verify checks a signature made by Sign.
func Verify(key crypto.PublicKey, message, signature []byte) error {
	sum := sha256.Sum256(message)
	valid := false
	switch key := key.(type) {
	case ed25519.PublicKey:
		valid = len(key) == ed25519.PublicKeySize && ed25519.Verify(key, message, signature)
	case *rsa.PublicKey:
		valid = rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) == nil
	case *ecdsa.PublicKey:
		valid = ecdsa.VerifyASN1(key, sum[:], signature)
	}
	if !valid {
		return errSignature
	}
	return nil
}

// sameKey reports whether two public keys are equal.
func sameKey(a, b crypto.PublicKey) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}
