// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/liqo-go/liqo/deploy/image"
)

// authoritiesPath is where Go programs look for the certificates of authorities on Debian.
const authoritiesPath = "/etc/ssl/certs/ca-certificates.crt"

// debianPackage is a package that the image has files of.
type debianPackage struct {
	name, version, arch string
	sum                 string // SHA-256 of the archive
	root                string // folder with its files
}

func (d debianPackage) purl() string {
	return "pkg:deb/debian/" + d.name + "@" + d.version + "?arch=" + d.arch
}

// debianFiles returns nft with what it needs, and certificates of authorities, from Debian's packages for an
// architecture. apt gets them, in the present version of the mirror that this machine uses, without installing any: it
// has folders of its own in dir, and assumes a machine that has nothing.
func debianFiles(ctx context.Context, dir, arch string) (image.Files, []debianPackage, error) {
	packages, err := fetch(ctx, dir, arch, "nftables", "ca-certificates")
	if err != nil {
		return nil, nil, err
	}
	var roots []string
	for _, p := range packages {
		roots = append(roots, p.root)
	}
	files, err := image.NFT(roots...)
	if err != nil {
		return nil, nil, err
	}
	used := map[string]bool{}
	for _, source := range files {
		for _, root := range roots {
			used[root] = used[root] || strings.HasPrefix(source, root+"/")
		}
	}
	var holds []debianPackage
	for _, p := range packages {
		if p.name == "ca-certificates" {
			bundle := filepath.Join(dir, "authorities.pem")
			if err := writeAuthorities(p.root, bundle); err != nil {
				return nil, nil, err
			}
			files[authoritiesPath] = bundle
		}
		if used[p.root] || p.name == "ca-certificates" {
			holds = append(holds, p)
		}
	}
	return files, holds, nil
}

// fetch downloads and unpacks packages with all they depend on, each into a folder of its own, ordered by name.
func fetch(ctx context.Context, dir, arch string, names ...string) ([]debianPackage, error) {
	archives := filepath.Join(dir, "archives")
	for _, needed := range []string{filepath.Join(dir, "lists", "partial"), filepath.Join(archives, "partial")} {
		if err := os.MkdirAll(needed, 0o755); err != nil {
			return nil, err
		}
	}
	apt := []string{"-o", "APT::Architecture=" + arch, "-o", "APT::Architectures=" + arch, "-o", "APT::Sandbox::User=",
		"-o", "Dir::State::lists=" + filepath.Join(dir, "lists"), "-o", "Dir::State::status=/dev/null",
		"-o", "Dir::Cache=" + dir, "-o", "Dir::Cache::archives=" + archives, "-o", "Debug::NoLocking=true"}
	for _, command := range [][]string{
		{"update"},
		append([]string{"install", "--download-only", "--yes", "--no-install-recommends"}, names...),
	} {
		if _, err := output(ctx, "apt-get", append(apt, command...)...); err != nil {
			return nil, err
		}
	}
	found, err := filepath.Glob(filepath.Join(archives, "*.deb"))
	if err != nil {
		return nil, err
	}
	var packages []debianPackage
	for _, archive := range found {
		p, err := unpack(ctx, archive, filepath.Join(dir, "root"))
		if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
	return packages, nil
}

// unpack unpacks a package into a folder below dir.
func unpack(ctx context.Context, archive, dir string) (p debianPackage, err error) {
	fields, err := output(ctx, "dpkg-deb", "--show", "--showformat=${Package} ${Version} ${Architecture}", archive)
	if err != nil {
		return p, err
	}
	if _, err := fmt.Sscan(fields, &p.name, &p.version, &p.arch); err != nil {
		return p, fmt.Errorf("read the name of %s: %w", archive, err)
	}
	if p.sum, err = sumOf(archive); err != nil {
		return p, err
	}
	p.root = filepath.Join(dir, p.name)
	if err := os.MkdirAll(p.root, 0o755); err != nil {
		return p, err
	}
	_, err = output(ctx, "dpkg-deb", "--extract", archive, p.root)
	return p, err
}

// writeAuthorities writes the certificates of package ca-certificates into one file, as its installation would.
func writeAuthorities(root, bundle string) error {
	found, err := filepath.Glob(filepath.Join(root, "usr/share/ca-certificates/mozilla/*.crt"))
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errors.New("package ca-certificates has no certificates")
	}
	var all bytes.Buffer
	for _, certificate := range found {
		content, err := os.ReadFile(certificate)
		if err != nil {
			return err
		}
		all.Write(content)
	}
	return os.WriteFile(bundle, all.Bytes(), 0o644)
}
