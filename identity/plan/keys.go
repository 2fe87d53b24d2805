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
)

const (
	pemPrivateKey = "PRIVATE KEY"
	pemPublicKey  = "PUBLIC KEY"

	// minRSABits is the least RSA key accepted from a peer: NIST SP 800-131A.
	minRSABits = 2048
	// maxRSABits bounds the work a peer can make us do with one signature.
	maxRSABits = 8192
)

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
