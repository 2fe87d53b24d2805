// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package image writes container images without a registry: archives as "docker save"
// makes them, which "ctr images import" takes. An image is one layer of files. Debian
// collects files for it from Debian's packages.
package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"
	"time"
)

// Image says what is in an archive.
type Image struct {
	Tags       []string // name:tag, at least one
	Entrypoint []string
	Cmd        []string
	Env        []string // K=V, after PATH
	User       string   // UID of the process; empty: root
	Files      []File
}

// File is copied from the machine into the image, or is a symbolic link.
type File struct {
	Source string
	Link   string // target of a symbolic link; the file then has neither Source nor Mode
	Path   string // absolute
	Mode   int64  // zero: 0755
}

// epoch stamps all entries: equal content gives equal archives.
var epoch = time.Unix(1, 0).UTC()

// WriteFile writes the archive to name, complete or not at all.
func WriteFile(name string, img Image) error {
	f, err := os.CreateTemp(path.Dir(name), ".image-*")
	if err != nil {
		return fmt.Errorf("write image %s: %w", name, err)
	}
	defer os.Remove(f.Name())
	if err := Write(f, img); err != nil {
		f.Close()
		return fmt.Errorf("write image %s: %w", name, err)
	}
	if err := errors.Join(f.Chmod(0o644), f.Close()); err != nil {
		return fmt.Errorf("write image %s: %w", name, err)
	}
	return os.Rename(f.Name(), name)
}

// Write writes the archive: manifest.json, the image's config and its layer.
func Write(w io.Writer, img Image) error {
	layer, err := layerOf(img.Files)
	if err != nil {
		return err
	}
	layerSum := sum(layer)
	config, err := configOf(img, layerSum)
	if err != nil {
		return err
	}
	configName, layerName := sum(config)+".json", layerSum+"/layer.tar"
	manifest, err := json.Marshal([]any{
		map[string]any{"Config": configName, "RepoTags": img.Tags, "Layers": []string{layerName}},
	})
	if err != nil {
		return err
	}
	t := archive{w: tar.NewWriter(w)}
	t.file("manifest.json", 0o644, manifest)
	t.file(configName, 0o644, config)
	t.file(layerName, 0o644, layer)
	return t.close()
}

func configOf(img Image, layerSum string) ([]byte, error) {
	created := epoch.Format(time.RFC3339)
	return json.Marshal(map[string]any{
		"created": created, "architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{
			"Env":        append([]string{"PATH=/usr/local/bin:/usr/bin:/bin"}, img.Env...),
			"Entrypoint": img.Entrypoint, "Cmd": img.Cmd, "WorkingDir": "/", "User": img.User,
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + layerSum}},
		"history": []any{map[string]any{"created": created, "created_by": "liqo testbed"}},
	})
}

// layerOf holds the files, their directories, and what programs expect of a root file
// system: users and a writable /tmp.
func layerOf(files []File) ([]byte, error) {
	var b bytes.Buffer
	t := archive{w: tar.NewWriter(&b), dirs: map[string]bool{}}
	t.dir("tmp", 0o1777)
	t.file("etc/passwd", 0o644, []byte("root:x:0:0:root:/:/\nnobody:x:65534:65534:nobody:/:/\n"))
	t.file("etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n"))
	for _, f := range files {
		if f.Link != "" {
			t.link(strings.TrimPrefix(f.Path, "/"), f.Link)
			continue
		}
		content, err := os.ReadFile(f.Source)
		if err != nil {
			return nil, err
		}
		mode := f.Mode
		if mode == 0 {
			mode = 0o755
		}
		t.file(strings.TrimPrefix(f.Path, "/"), mode, content)
	}
	err := t.close()
	return b.Bytes(), err
}

// archive is a tar writer that keeps its first error. With dirs it also writes the
// directories above each file, once.
type archive struct {
	w    *tar.Writer
	dirs map[string]bool
	err  error
}

func (a *archive) dir(name string, mode int64) {
	if a.dirs == nil || name == "." || name == "/" || a.dirs[name] {
		return
	}
	a.dir(path.Dir(name), 0o755)
	a.dirs[name] = true
	a.header(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, ModTime: epoch})
}

func (a *archive) file(name string, mode int64, content []byte) {
	a.dir(path.Dir(name), 0o755)
	a.header(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: epoch})
	if a.err == nil {
		_, a.err = a.w.Write(content)
	}
}

func (a *archive) link(name, target string) {
	a.dir(path.Dir(name), 0o755)
	a.header(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777, ModTime: epoch})
}

func (a *archive) header(h *tar.Header) {
	if a.err == nil {
		a.err = a.w.WriteHeader(h)
	}
}

func (a *archive) close() error {
	if a.err != nil {
		return a.err
	}
	return a.w.Close()
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
