// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// packagePath is where the linker sets version, image and digest.
const packagePath = "github.com/liqo-go/liqo/deploy"

// goFlags equals GOFLAGS of the Makefile, so that packages which that has compiled are reused.
const goFlags = "-trimpath -buildvcs=false -gcflags=all=-dwarf=false"

// platform names an operating system and an architecture, as Go does.
type platform struct{ os, arch string }

// clients are the platforms of liqoctl, servers those of the image.
var (
	clients = []platform{{"darwin", "amd64"}, {"darwin", "arm64"}, {"linux", "amd64"}, {"linux", "arm64"},
		{"windows", "amd64"}, {"windows", "arm64"}}
	servers = []platform{{"linux", "amd64"}, {"linux", "arm64"}}
)

// archive is the file name of liqoctl for the platform.
func (p platform) archive() string {
	if p.os == "windows" {
		return "liqoctl-windows-" + p.arch + ".zip"
	}
	return "liqoctl-" + p.os + "-" + p.arch + ".tar.gz"
}

// program is the file name of liqoctl on the platform.
func (p platform) program() string {
	if p.os == "windows" {
		return "liqoctl.exe"
	}
	return "liqoctl"
}

// program is liqoctl of one platform.
type program struct {
	platform
	binary string // the compiled file
	sum    string // SHA-256 of the archive with it
}

// compile compiles commands of the product into dir. settings become variables of package deploy.
func (r *release) compile(ctx context.Context, p platform, dir string, settings map[string]string,
	commands ...string) error {
	ldflags := []string{"-s", "-w"}
	for _, name := range []string{"version", "image", "digest"} {
		if settings[name] != "" {
			ldflags = append(ldflags, "-X", packagePath+"."+name+"="+settings[name])
		}
	}
	args := []string{"build", "-ldflags", strings.Join(ldflags, " "), "-o", dir + "/"}
	for _, command := range commands {
		args = append(args, "./cmd/"+command)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = r.source
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOFLAGS="+goFlags, "GOOS="+p.os, "GOARCH="+p.arch,
		"GOAMD64=v1", "GOARM64=v8.0")
	_, err := outputOf(cmd)
	return err
}

// makePrograms compiles liqoctl for all platforms and writes an archive of each, with completions and the licence.
func (r *release) makePrograms(ctx context.Context, work, digest string) ([]program, error) {
	settings := map[string]string{"version": r.version, "image": r.imageName(), "digest": digest}
	var programs []program
	var here string
	for _, p := range clients {
		dir := filepath.Join(work, p.os+"-"+p.arch)
		if err := r.compile(ctx, p, dir, settings, "liqoctl"); err != nil {
			return nil, err
		}
		made := program{platform: p, binary: filepath.Join(dir, p.program())}
		programs = append(programs, made)
		if p == (platform{runtime.GOOS, runtime.GOARCH}) {
			here = made.binary
		}
	}
	others, err := r.completions(ctx, here)
	if err != nil {
		return nil, err
	}
	if others["LICENSE"], err = os.ReadFile(filepath.Join(r.source, "LICENSE")); err != nil {
		return nil, err
	}
	for i := range programs {
		if err := r.writeArchive(&programs[i], others); err != nil {
			return nil, err
		}
	}
	return programs, nil
}

// completions returns the completion scripts that liqoctl prints.
func (r *release) completions(ctx context.Context, liqoctl string) (map[string][]byte, error) {
	if liqoctl == "" {
		return nil, fmt.Errorf("no liqoctl for %s/%s was made, which would print its completions",
			runtime.GOOS, runtime.GOARCH)
	}
	scripts := map[string][]byte{}
	for shell, name := range map[string]string{
		"bash": "liqoctl.bash", "zsh": "_liqoctl", "fish": "liqoctl.fish", "powershell": "liqoctl.ps1",
	} {
		script, err := output(ctx, liqoctl, "completion", shell)
		if err != nil {
			return nil, err
		}
		scripts["completions/"+name] = []byte(script + "\n")
	}
	return scripts, nil
}

// writeArchive writes the archive of a program with other files in it.
func (r *release) writeArchive(p *program, others map[string][]byte) error {
	binary, err := os.ReadFile(p.binary)
	if err != nil {
		return err
	}
	files := []file{{name: p.program(), content: binary, executable: true}}
	files = append(files, sortedFiles("", others)...)
	pack := tarGzip
	if p.os == "windows" {
		pack = zipped
	}
	var buf bytes.Buffer
	if err := pack(&buf, files, r.time); err != nil {
		return fmt.Errorf("pack %s: %w", p.archive(), err)
	}
	if err := r.write(p.archive(), buf.Bytes()); err != nil {
		return err
	}
	p.sum, err = sumOf(filepath.Join(r.dist, p.archive()))
	return err
}

// goSoftware lists what a Go program was compiled from.
func goSoftware(name, version, file string) (software, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return software{}, fmt.Errorf("read modules of %s: %w", file, err)
	}
	sum, err := sumOf(file)
	if err != nil {
		return software{}, err
	}
	out := software{name: name, version: version, sum: sum}
	std := strings.TrimPrefix(info.GoVersion, "go")
	out.parts = append(out.parts, software{name: "stdlib", version: std, purl: "pkg:golang/stdlib@" + std})
	for _, m := range info.Deps {
		m = cmp.Or(m.Replace, m)
		purl := "pkg:golang/" + m.Path + "@" + m.Version
		out.parts = append(out.parts, software{name: m.Path, version: m.Version, purl: purl})
	}
	return out, nil
}
