// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command archive writes the container image of Liqo as a docker archive, with nft of this machine and the binaries
// that are its arguments.
package main

import (
	"flag"
	"fmt"
	"log"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/liqo-go/liqo/deploy/image"
)

func main() {
	tag := flag.String("tag", "", "name:tag of the image")
	out := flag.String("o", "", "archive to write")
	flag.Parse()
	if err := write(flag.Args(), *tag, *out); err != nil {
		log.Fatal(err)
	}
}

func write(binaries []string, tag, out string) error {
	ref, err := name.NewTag(tag)
	if err != nil {
		return fmt.Errorf("parse image name: %w", err)
	}
	nft, err := image.NFT("/")
	if err != nil {
		return err
	}
	programs := image.Files{}
	for _, binary := range binaries {
		programs["/usr/bin/"+filepath.Base(binary)] = binary
	}
	made, err := image.New(image.Options{Architecture: runtime.GOARCH, Layers: []image.Files{nft, programs}})
	if err != nil {
		return err
	}
	return tarball.WriteToFile(out, ref, made)
}
