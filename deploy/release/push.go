// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sigstore/sigstore/pkg/signature"
	helmregistry "helm.sh/helm/v4/pkg/registry"
	repo "helm.sh/helm/v4/pkg/repo/v1"
)

// push copies image and chart of a folder to a registry, with the credentials that "docker login" stored. With a signer
// it adds a signature of the image. Pushing again changes nothing but that signature.
func push(ctx context.Context, dist, registry string, plainHTTP bool, signer signature.Signer) error {
	index, version, err := readLayout(filepath.Join(dist, layoutDir))
	if err != nil {
		return err
	}
	var options []name.Option
	if plainHTTP {
		options = append(options, name.Insecure)
	}
	tag, err := name.NewTag(registry+"/liqo:"+version, options...)
	if err != nil {
		return fmt.Errorf("parse image name: %w", err)
	}
	access := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if err := remote.WriteIndex(tag, index, access...); err != nil {
		return fmt.Errorf("push %s: %w", tag, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("pushed %s@%s\n", tag, digest)
	if signer != nil {
		made, err := imageSignature(tag.Digest(digest.String()), signer)
		if err != nil {
			return err
		}
		beside := tag.Tag(strings.ReplaceAll(digest.String(), ":", "-") + ".sig")
		if err := remote.Write(beside, made, access...); err != nil {
			return fmt.Errorf("push %s: %w", beside, err)
		}
	}
	return pushChart(dist, version, registry+"/charts/liqo:"+version[len("v"):], plainHTTP)
}

// pushChart pushes the packed chart as Helm does, with the time of the release.
func pushChart(dist, version, ref string, plainHTTP bool) error {
	content, err := os.ReadFile(filepath.Join(dist, chartFile(version)))
	if err != nil {
		return err
	}
	index, err := repo.LoadIndexFile(filepath.Join(dist, indexFile))
	if err != nil {
		return err
	}
	options := []helmregistry.ClientOption{helmregistry.ClientOptWriter(os.Stdout)}
	if plainHTTP {
		options = append(options, helmregistry.ClientOptPlainHTTP())
	}
	client, err := helmregistry.NewClient(options...)
	if err != nil {
		return fmt.Errorf("push %s: %w", ref, err)
	}
	created := helmregistry.PushOptCreationTime(index.Generated.Format(time.RFC3339))
	if _, err := client.Push(content, ref, created); err != nil {
		return fmt.Errorf("push %s: %w", ref, err)
	}
	return nil
}
