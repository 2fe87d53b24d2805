// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"github.com/liqo-go/liqo/api"
)

const pemRequest = "CERTIFICATE REQUEST"

// Subject holds the names that a request asks for: the user and its only group at the provider.
type Subject struct{ User, Group string }

// ControlPlaneSubject is the subject of a consumer's control plane.
func ControlPlaneSubject(consumer string) Subject {
	return Subject{consumer, api.ControlPlaneOrganization}
}

// SliceSubject is the subject of one slice of a consumer.
func SliceSubject(slice, consumer string) Subject {
	return Subject{api.ResourceSliceUserName(slice, consumer), consumer}
}

// NewRequest makes a signing request (PEM) for the key.
func NewRequest(key crypto.Signer, s Subject) ([]byte, error) {
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: s.User, Organization: []string{s.Group}}}
	der, err := x509.CreateCertificateRequest(nil, template, key)
	if err != nil {
		return nil, fmt.Errorf("create signing request for %s: %w", s.User, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemRequest, Bytes: der}), nil
}

// ParseRequest reads a signing request (PEM) and checks that its maker holds the key.
func ParseRequest(data []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != pemRequest || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("parse signing request: not exactly one PEM block CERTIFICATE REQUEST")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse signing request: %w", err)
	}
	if err := checkPublicKey(request.PublicKey); err != nil {
		return nil, err
	}
	if err := request.CheckSignature(); err != nil {
		return nil, fmt.Errorf("parse signing request: %w", err)
	}
	return request, nil
}

// CheckRequest returns the request's key if it asks for exactly the subject and nothing else. Every
// further name would grant rights.
func CheckRequest(data []byte, want Subject) (crypto.PublicKey, error) {
	request, err := ParseRequest(data)
	if err != nil {
		return nil, err
	}
	if request.Subject.CommonName != want.User {
		return nil, fmt.Errorf("common name is %q, want %q", request.Subject.CommonName, want.User)
	}
	if !slices.Equal(request.Subject.Organization, []string{want.Group}) {
		return nil, fmt.Errorf("organization is %q, want %q", request.Subject.Organization, want.Group)
	}
	if len(request.Subject.Names) != 2 {
		return nil, errors.New("subject holds more than common name and organization")
	}
	if len(request.DNSNames)+len(request.EmailAddresses)+len(request.IPAddresses)+len(request.URIs) > 0 {
		return nil, errors.New("request holds subject alternative names, want none")
	}
	return request.PublicKey, nil
}
