// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/dsse"
	"github.com/sigstore/sigstore/pkg/signature/payload"
)

const (
	// signatureFile has what "cosign verify-blob" expects for the sums.
	signatureFile = sumsFile + ".sig"
	// envelopeFile has the provenance with its signature, as "cosign verify-blob-attestation" expects.
	envelopeFile = "provenance.intoto.jsonl"
	inTotoType   = "application/vnd.in-toto+json"
	// simpleSigning and signatureAnnotation are how cosign stores signatures of images in registries.
	simpleSigning       = types.MediaType("application/vnd.dev.cosign.simplesigning.v1+json")
	signatureAnnotation = "dev.cosignproject.cosign/signature"
)

// loadSigner reads a key. It returns no signer for a release that is unsigned on purpose, which has no key; any other
// release without a key is an error.
func loadSigner(keyFile, password string, unsigned bool) (signature.Signer, error) {
	switch {
	case unsigned && keyFile != "":
		return nil, fmt.Errorf("both a signing key %s and -unsigned are given; choose one", keyFile)
	case unsigned:
		return nil, nil
	case keyFile == "":
		return nil, errors.New("no signing key: give -key (make: KEY=<file>), or -unsigned (make: UNSIGNED=yes) to try")
	}
	ask := func(bool) ([]byte, error) { return []byte(password), nil }
	signer, err := signature.LoadSignerFromPEMFile(keyFile, crypto.SHA256, ask)
	if err != nil {
		return nil, fmt.Errorf("read signing key %s: %w", keyFile, err)
	}
	return signer, nil
}

// signFolder signs sums and provenance. Without a signer it does nothing.
func signFolder(dir string, signer signature.Signer) error {
	if signer == nil {
		return nil
	}
	asText := func(signed []byte) string { return base64.StdEncoding.EncodeToString(signed) }
	asIs := func(signed []byte) string { return string(signed) }
	for _, s := range []struct {
		from, to string
		signer   signature.Signer
		encode   func([]byte) string
	}{
		{sumsFile, signatureFile, signer, asText},
		{provenanceFile, envelopeFile, dsse.WrapSigner(signer, inTotoType), asIs},
	} {
		content, err := os.ReadFile(filepath.Join(dir, s.from))
		if err != nil {
			return err
		}
		signed, err := s.signer.SignMessage(bytes.NewReader(content))
		if err != nil {
			return fmt.Errorf("sign %s: %w", s.from, err)
		}
		if err := os.WriteFile(filepath.Join(dir, s.to), []byte(s.encode(signed)+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// imageSignature is the image that "cosign verify --key" finds beside an image of this digest.
func imageSignature(of name.Digest, signer signature.Signer) (v1.Image, error) {
	text, err := payload.Cosign{Image: of}.MarshalJSON()
	if err != nil {
		return nil, err
	}
	signed, err := signer.SignMessage(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", of, err)
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return mutate.Append(base, mutate.Addendum{
		Layer:       static.NewLayer(text, simpleSigning),
		Annotations: map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(signed)},
	})
}
