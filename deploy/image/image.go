// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package image makes the container image of Liqo without a container engine: a layer with nft and the libraries it
// needs, and a layer with the static binaries. Equal input makes equal images. Command archive writes one for
// development; deploy/release makes those of releases.
package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the UID and GID of processes whose pods name none: the chart's, which no file of the image belongs to.
const user = "65532:65532"

// Files are files of an image: the path in the image, absolute, and the file to copy.
type Files map[string]string

// Options say what is in an image.
type Options struct {
	Architecture string            // as Go names it
	Created      time.Time         // zero: the image does not say
	Labels       map[string]string // of the image's config
	Layers       []Files           // from the lowest; what changes least comes first
	Small        bool              // compress as much as gzip can, which takes several times longer
}

// New makes an image for Linux.
func New(o Options) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(base, &v1.ConfigFile{
		OS: "linux", Architecture: o.Architecture, Created: v1.Time{Time: o.Created}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: []string{"/usr/bin/liqo"},
			Env:        []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
			WorkingDir: "/",
			User:       user,
			Labels:     o.Labels,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("set image config: %w", err)
	}
	for _, files := range o.Layers {
		packed, err := layer(files, o.Small)
		if err != nil {
			return nil, err
		}
		if image, err = mutate.AppendLayers(image, packed); err != nil {
			return nil, fmt.Errorf("append layer: %w", err)
		}
	}
	return image, nil
}

// layer packs files in path order and with zero times.
func layer(files Files, small bool) (v1.Layer, error) {
	var buf bytes.Buffer
	tw := tar.NewWriter(&buf)
	dirs := map[string]bool{"/": true}
	for _, target := range slices.Sorted(maps.Keys(files)) {
		if err := addDirs(tw, dirs, path.Dir(target)); err != nil {
			return nil, err
		}
		if err := addFile(tw, target, files[target]); err != nil {
			return nil, err
		}
	}
	if err := tw.Close(); err != nil {
		return nil, fmt.Errorf("close layer: %w", err)
	}
	level := gzip.BestSpeed
	if small {
		level = gzip.BestCompression
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(level), tarball.WithCompressedCaching)
}

// addDirs writes the directories down to dir that are not in the layer yet.
func addDirs(tw *tar.Writer, dirs map[string]bool, dir string) error {
	if dirs[dir] {
		return nil
	}
	if err := addDirs(tw, dirs, path.Dir(dir)); err != nil {
		return err
	}
	dirs[dir] = true
	return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir[1:] + "/", Mode: 0o755,
		ModTime: time.Unix(0, 0)})
}

func addFile(tw *tar.Writer, target, file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: target[1:], Mode: 0o755, Size: int64(len(content)),
		ModTime: time.Unix(0, 0)}
	if err := tw.WriteHeader(header); err != nil {
		return fmt.Errorf("add %s: %w", target, err)
	}
	_, err = tw.Write(content)
	return err
}
