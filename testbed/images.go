// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/liqo-go/liqo/testbed/image"
)

// pauseTag holds the namespaces of every pod; containerd's configuration names it.
const pauseTag = "testbed.local/pause:1"

// metricsServer is the image with which a cluster has the API metrics.k8s.io.
const metricsServer = "metrics-server"

// devices is the image of a driver of made-up devices, for rows about GPUs.
const devices = "devices"

// busybox is one file, which is every program it is called by.
const busybox = "/bin/busybox"

// builtImages are the images made of built programs, and of Debian's shell.
func (t Testbed) builtImages() map[string]image.Image {
	single := func(binary string, tags ...string) image.Image {
		name := filepath.Base(binary)
		return image.Image{
			Tags: tags, Entrypoint: []string{"/" + name},
			Files: []image.File{{Source: filepath.Join(t.Cache, binary), Path: "/" + name}},
		}
	}
	return map[string]image.Image{
		"pause":   single("images/pause", pauseTag),
		"echo":    single("images/echo", "testbed.local/echo:1"),
		"coredns": single("coredns-v"+coreDNSVersion+"/coredns", "testbed.local/coredns:1"),
		"shell": {
			Tags: []string{"testbed.local/shell:1"}, Entrypoint: []string{"/bin/sh"},
			Files: []image.File{{Source: busybox, Path: "/bin/sh"}, {Source: busybox, Path: "/bin/tar"}}, // kubectl cp calls tar
		},
		metricsServer: single("metrics-server-v"+metricsServerVersion+"/"+metricsServer, "testbed.local/metrics-server:1"),
		devices:       single("images/devices", "testbed.local/devices:1"),
		// The second name is the one Kubernetes' end-to-end tests ask for.
		"agnhost": single("kubernetes-v"+kubernetesVersion+"/agnhost", "testbed.local/agnhost:1"),
	}
}

// defaultImages are those every worker has.
func defaultImages() []string { return []string{"pause", "coredns", "echo"} }

func (t Testbed) imageFile(name string) string {
	return filepath.Join(t.Cache, "images", name+".tar")
}

// packImage makes the archive of a program's image when the program is newer. A program
// without an image is fine.
func (t Testbed) packImage(name string) error {
	img, ok := t.builtImages()[name]
	if !ok {
		return nil
	}
	binary, err := os.Stat(img.Files[0].Source)
	if err != nil {
		return err
	}
	if archive, err := os.Stat(t.imageFile(name)); err == nil && archive.ModTime().After(binary.ModTime()) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(t.imageFile(name)), 0o755); err != nil {
		return err
	}
	return image.WriteFile(t.imageFile(name), img)
}

// imageFiles are the archives behind names of built images or paths, absolute.
func (t Testbed) imageFiles(names []string) ([]string, error) {
	var files []string
	for _, name := range names {
		file := name
		err := t.packImage(name)
		if _, built := t.builtImages()[name]; built {
			file = t.imageFile(name)
		}
		if err == nil {
			_, err = os.Stat(file)
		}
		if err != nil {
			return nil, fmt.Errorf("image %s: %w; name an archive or one of %s",
				name, err, strings.Join(t.builtNames(), ", "))
		}
		file, err = filepath.Abs(file)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	return files, nil
}

func (t Testbed) builtNames() []string {
	var names []string
	for name := range t.builtImages() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
