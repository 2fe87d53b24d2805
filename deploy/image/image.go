// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image writes the container image of Liqo as a docker archive, without a container
// engine: a layer with nft and the libraries it needs, taken from this machine, and a layer with
// the static binaries, which are its arguments.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	tag := flag.String("tag", "", "name:tag of the image")
	out := flag.String("o", "", "archive to write")
	flag.Parse()
	if err := build(flag.Args(), *tag, *out); err != nil {
		log.Fatal(err)
	}
}

// build writes the image to out. The result depends on the inputs only: no times, no order.
func build(binaries []string, tag, out string) error {
	ref, err := name.NewTag(tag)
	if err != nil {
		return fmt.Errorf("parse image name: %w", err)
	}
	nft, err := nftFiles()
	if err != nil {
		return err
	}
	base, err := layer(nft)
	if err != nil {
		return err
	}
	programs := map[string]string{}
	for _, binary := range binaries {
		programs["/usr/bin/"+filepath.Base(binary)] = binary
	}
	app, err := layer(programs)
	if err != nil {
		return err
	}
	platform, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
	if err != nil {
		return fmt.Errorf("set image platform: %w", err)
	}
	image, err := mutate.AppendLayers(platform, base, app)
	if err != nil {
		return fmt.Errorf("append layers: %w", err)
	}
	image, err = mutate.Config(image, v1.Config{
		Entrypoint: []string{"/usr/bin/liqo"},
		Env:        []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		WorkingDir: "/",
	})
	if err != nil {
		return fmt.Errorf("set image config: %w", err)
	}
	return tarball.WriteToFile(out, ref, image)
}

// nftFiles maps paths in the image to files of this machine: nft, its interpreter and libraries.
func nftFiles() (map[string]string, error) {
	nft, err := exec.LookPath("nft")
	if err != nil {
		return nil, fmt.Errorf("find nft (Debian package nftables): %w", err)
	}
	listing, err := exec.Command("ldd", nft).Output()
	if err != nil {
		return nil, fmt.Errorf("list libraries of %s: %w", nft, err)
	}
	files := map[string]string{"/usr/sbin/nft": nft}
	for _, lib := range regexp.MustCompile(`/\S+`).FindAllString(string(listing), -1) {
		files[lib] = lib
	}
	return files, nil
}

// layer packs files, keyed by their path in the image, in path order and with zero times.
func layer(files map[string]string) (v1.Layer, error) {
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
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	})
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
