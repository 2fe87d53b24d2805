// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/liqo-go/liqo/testbed/image"
)

const busybox = "/bin/busybox"

// passwd and group hold the user and the group of agnhost that specs look for.
const (
	passwd = "root:x:0:0:root:/:/bin/sh\nuser-defined-in-image:x:1000:1000::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
	group  = "root:x:0:\nuser-defined-in-image:x:1000:\n" +
		"group-defined-in-image:x:50000:user-defined-in-image\nnogroup:x:65534:\n"
)

// images writes archives of images that specs ask for, under the names the suite prints. They hold the programs that
// specs call, not what the published images hold.
func (b *bed) images(ctx context.Context) ([]string, error) {
	printed, err := output(exec.CommandContext(ctx, b.tool("e2e.test"), "--list-images"))
	if err != nil {
		return nil, err
	}
	tags := map[string][]string{} // by name without registry and version
	for tag := range strings.FieldsSeq(printed) {
		name, _, _ := strings.Cut(path.Base(tag), ":")
		tags[name] = append(tags[name], tag)
	}
	shell, err := b.shell(ctx)
	if err != nil {
		return nil, err
	}
	kubernetes, err := output(b.suite(ctx, "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes"))
	if err != nil {
		return nil, err
	}
	sources := filepath.Join(strings.TrimSpace(kubernetes), "test", "images", "agnhost", "porter")
	agnhost := append([]image.File{
		{Source: b.cached("kubernetes-"+b.version, "agnhost"), Path: "/agnhost"}, {Link: "agnhost", Path: "/agnhost-2"},
		{Source: filepath.Join(sources, "localhost.crt"), Path: "/localhost.crt", Mode: 0o644},
		{Source: filepath.Join(sources, "localhost.key"), Path: "/localhost.key", Mode: 0o644},
	}, shell...)
	nnp := []image.File{{Source: b.tool("nnp"), Path: "/usr/local/bin/nnp", Mode: 0o6755}} // setuid
	pause := []image.File{{Source: b.cached("images", "pause"), Path: "/pause"}}
	var archives []string
	for name, img := range map[string]image.Image{
		"agnhost":    {Tags: tags["agnhost"], Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, Files: agnhost},
		"busybox":    {Tags: append(tags["busybox"], tags["jessie-dnsutils"]...), Cmd: []string{"sh"}, Files: shell},
		"nginx":      {Tags: tags["nginx"], Cmd: []string{"httpd", "-f", "-p", "80"}, Files: shell},
		"nonroot":    {Tags: tags["nonroot"], Cmd: []string{"sh"}, User: "1234", Files: shell},
		"nonewprivs": {Tags: tags["nonewprivs"], Cmd: []string{"nnp"}, Files: nnp},
		"pause":      {Tags: tags["pause"], Entrypoint: []string{"/pause"}, Files: pause},
	} {
		archive := b.tool(name + ".tar")
		if err := image.WriteFile(archive, img); err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return archives, nil
}

// shell is busybox under all its names but sh, and programs of Debian with their libraries. The shell is bash: that of
// busybox prefers its own nc, which lacks options, and both it and dash lose variables whose names have a dash.
func (b *bed) shell(ctx context.Context) ([]image.File, error) {
	packages := b.tool("packages")
	if err := unpack(ctx, packages, "bind9-dnsutils", "netcat-openbsd", "curl"); err != nil {
		return nil, err
	}
	users := b.tool("passwd")
	if err := os.WriteFile(users, []byte(passwd), 0o644); err != nil {
		return nil, err
	}
	groups := b.tool("group")
	if err := os.WriteFile(groups, []byte(group), 0o644); err != nil {
		return nil, err
	}
	files := []image.File{{Source: busybox, Path: busybox}, {Source: users, Path: "/etc/passwd", Mode: 0o644}, {Source: groups, Path: "/etc/group", Mode: 0o644}}
	names, err := output(exec.CommandContext(ctx, busybox, "--list"))
	if err != nil {
		return nil, err
	}
	for name := range strings.FieldsSeq(names) {
		if name != "busybox" && name != "nc" && name != "sh" {
			files = append(files, image.File{Link: "busybox", Path: "/bin/" + name})
		}
	}
	libraries := map[string]bool{}
	for name, place := range map[string]string{"sh": "bin/bash", "bash": "bin/bash", "dig": "usr/bin/dig", "nc": "bin/nc.openbsd", "curl": "usr/bin/curl", "getent": "usr/bin/getent"} {
		source := filepath.Join(packages, place)
		if _, err := os.Stat(source); err != nil {
			source = "/" + place // installed, so that its package was not fetched
		}
		files = append(files, image.File{Source: source, Path: "/bin/" + name})
		ldd := exec.CommandContext(ctx, "ldd", source)
		ldd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(packages, "usr/lib/x86_64-linux-gnu"))
		printed, err := output(ldd)
		if err != nil {
			return nil, err
		}
		for word := range strings.FieldsSeq(printed) {
			if strings.HasPrefix(word, "/") && !libraries[word] {
				libraries[word] = true
				files = append(files, image.File{Source: word, Path: strings.TrimPrefix(word, packages)})
			}
		}
	}
	return files, nil
}

// unpack fetches Debian packages and what they need beyond what is installed, and installs none of them.
func unpack(ctx context.Context, into string, packages ...string) error {
	archives := filepath.Join(into, "archives")
	if err := os.MkdirAll(filepath.Join(archives, "partial"), 0o755); err != nil {
		return err
	}
	args := []string{"install", "--download-only", "--yes", "--no-install-recommends", "-o", "Dir::Cache::archives=" + archives}
	if _, err := output(exec.CommandContext(ctx, "apt-get", append(args, packages...)...)); err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(archives, "*.deb"))
	if err != nil {
		return err
	}
	for _, archive := range found {
		if _, err := output(exec.CommandContext(ctx, "dpkg", "-x", archive, into)); err != nil {
			return err
		}
	}
	return nil
}
