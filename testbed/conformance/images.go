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
	passwd = "root:x:0:0:root:/:/bin/sh\nuser-defined-in-image:x:1000:1000::/:/bin/sh\n" +
		"nobody:x:65534:65534::/:/bin/sh\n"
	group = "root:x:0:\nuser-defined-in-image:x:1000:\n" +
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
	users := b.tool("passwd")
	if err := os.WriteFile(users, []byte(passwd), 0o644); err != nil {
		return nil, err
	}
	groups := b.tool("group")
	if err := os.WriteFile(groups, []byte(group), 0o644); err != nil {
		return nil, err
	}
	files := []image.File{
		{Source: busybox, Path: busybox},
		{Source: users, Path: "/etc/passwd", Mode: 0o644}, {Source: groups, Path: "/etc/group", Mode: 0o644},
	}
	names, err := output(exec.CommandContext(ctx, busybox, "--list"))
	if err != nil {
		return nil, err
	}
	for name := range strings.FieldsSeq(names) {
		if name != "busybox" && name != "nc" && name != "sh" {
			files = append(files, image.File{Link: "busybox", Path: "/bin/" + name})
		}
	}
	programs, err := image.Debian(ctx, b.tool("packages"),
		[]string{"bash", "libc-bin", "bind9-dnsutils", "netcat-openbsd", "curl"},
		[]string{"bin/bash", "usr/bin/getent", "usr/bin/dig", "bin/nc.openbsd", "usr/bin/curl"})
	files = append(files, image.File{Link: "bash", Path: "/bin/sh"}, image.File{Link: "nc.openbsd", Path: "/bin/nc"})
	return append(files, programs...), err
}
