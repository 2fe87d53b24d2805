// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/liqo-go/liqo/deploy/image"
)

// maxImageSize bounds what a node downloads, in bytes.
const maxImageSize = 30_000_000

// layoutDir is the folder of the release with the image as OCI layout.
const layoutDir = "image"

// madeImage is the image of all platforms.
type madeImage struct {
	digest string          // of the index
	parts  []software      // the image of each platform
	debian []debianPackage // that images have files of
}

// makeImage writes the image of all platforms under one index.
func (r *release) makeImage(ctx context.Context, work string) (*madeImage, error) {
	made := &madeImage{}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range servers {
		one, err := r.addPlatform(ctx, work, p, made)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: one, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}},
		})
	}
	digest, err := writeLayout(filepath.Join(r.dist, layoutDir), r.version, index)
	made.digest = digest
	return made, err
}

// addPlatform makes the image of one platform, and adds what is in it to m.
func (r *release) addPlatform(ctx context.Context, work string, p platform, m *madeImage) (v1.Image, error) {
	base, packages, err := debianFiles(ctx, filepath.Join(work, "debian-"+p.arch), p.arch)
	if err != nil {
		return nil, err
	}
	m.debian = append(m.debian, packages...)
	holds := software{name: "image-" + p.os + "-" + p.arch, version: r.version}
	for _, d := range packages {
		holds.parts = append(holds.parts, software{name: d.name, version: d.version, purl: d.purl(), sum: d.sum})
	}
	dir, programs := filepath.Join(work, "image-"+p.arch), image.Files{}
	commands := []string{"liqo", "liqo-control"}
	if err := r.compile(ctx, p, dir, map[string]string{"version": r.version}, commands...); err != nil {
		return nil, err
	}
	for _, command := range commands {
		binary := filepath.Join(dir, command)
		programs["/usr/bin/"+command] = binary
		part, err := goSoftware(command+"-"+p.os+"-"+p.arch, r.version, binary)
		if err != nil {
			return nil, err
		}
		holds.parts = append(holds.parts, part)
	}
	made, err := image.New(image.Options{
		Architecture: p.arch, Created: r.time, Small: true, Layers: []image.Files{base, programs},
		Labels: map[string]string{
			"org.opencontainers.image.title": "liqo", "org.opencontainers.image.version": r.version,
			"org.opencontainers.image.revision": r.commit, "org.opencontainers.image.licenses": "Apache-2.0",
		},
	})
	if err != nil {
		return nil, err
	}
	size, err := sizeOf(made)
	if err != nil {
		return nil, err
	}
	fmt.Printf("image for %s/%s: %.1f MB compressed\n", p.os, p.arch, float64(size)/1e6)
	if size > maxImageSize {
		return nil, fmt.Errorf("the image for %s/%s has %d bytes, of %d at most", p.os, p.arch, size, maxImageSize)
	}
	digest, err := made.Digest()
	holds.sum = digest.Hex
	m.parts = append(m.parts, holds)
	return made, err
}

// sizeOf returns how many bytes of layers a node downloads.
func sizeOf(made v1.Image) (size int64, err error) {
	manifest, err := made.Manifest()
	if err != nil {
		return 0, err
	}
	for _, l := range manifest.Layers {
		size += l.Size
	}
	return size, nil
}

// writeLayout writes an OCI layout with one entry, the index of all platforms, and returns its digest.
func writeLayout(dir, version string, index v1.ImageIndex) (string, error) {
	written, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", fmt.Errorf("write image: %w", err)
	}
	tag := map[string]string{"org.opencontainers.image.ref.name": version}
	if err := written.AppendIndex(index, layout.WithAnnotations(tag)); err != nil {
		return "", fmt.Errorf("write image: %w", err)
	}
	digest, err := index.Digest()
	return digest.String(), err
}

// readLayout returns the index that writeLayout wrote, and its version.
func readLayout(dir string) (index v1.ImageIndex, version string, err error) {
	read, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, "", fmt.Errorf("read image: %w", err)
	}
	manifest, err := read.IndexManifest()
	if err != nil {
		return nil, "", fmt.Errorf("read image: %w", err)
	}
	if len(manifest.Manifests) != 1 {
		return nil, "", fmt.Errorf("%s has %d images instead of one index", dir, len(manifest.Manifests))
	}
	entry := manifest.Manifests[0]
	index, err = read.ImageIndex(entry.Digest)
	return index, entry.Annotations["org.opencontainers.image.ref.name"], err
}

// software lists what the image was made of.
func (m *madeImage) software(r *release) software {
	return software{name: "liqo", version: r.version, sum: m.digest[len("sha256:"):],
		purl: "pkg:oci/liqo@" + m.digest + "?repository_url=" + r.imageName(), parts: m.parts}
}
