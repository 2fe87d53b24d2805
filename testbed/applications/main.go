// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command applications builds the images of the real programs that 'make test-applications' runs, and prints the
// archives. Programs come from Go modules, whose go.mod lies in a folder beside it, and from Debian packages, which
// are unpacked and not installed. All is kept in the testbed's cache.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/liqo-go/liqo/testbed/image"
)

// app is an image. It has the name that public manifests use, so that these need no change, and a shell besides
// its programs.
type app struct {
	name string
	// module is the folder with the go.mod, programs are import paths of commands. The first one is the entrypoint.
	module   string
	programs []string
	tags     string // build tags
	// packages are Debian packages, files are globs of what is taken from them along with the libraries it needs.
	packages, files []string
	env             []string
	user            string // UID that the image's processes have
}

func apps() []app {
	return []app{
		{name: "docker.io/library/postgres:15", packages: []string{"postgresql-15"}, files: []string{
			"usr/lib/postgresql/15/bin/*", "usr/lib/postgresql/15/lib/*.so", "usr/share/postgresql/15"},
			env: []string{"PATH=/usr/lib/postgresql/15/bin:/usr/bin:/bin"}},
		{name: "docker.io/library/redis:7.0", packages: []string{"redis-server", "redis-tools"}, files: []string{
			"usr/bin/redis-*"}},
		{name: "docker.io/library/nats:2.15.3", module: "nats", programs: []string{
			"github.com/nats-io/nats-server/v2", "github.com/nats-io/natscli/nats"}},
		certManager("controller"), certManager("webhook"), certManager("cainjector"),
	}
}

// certManager is an image of the chart of cert-manager, whose pods must not run as root.
func certManager(program string) app {
	return app{name: "quay.io/jetstack/cert-manager-" + program + ":v1.11.5", user: "1000", module: "certmanager",
		programs: []string{"github.com/cert-manager/cert-manager/cmd/" + program}}
}

func main() {
	cache, err := os.UserCacheDir()
	if err != nil {
		log.Fatal(err)
	}
	for _, a := range apps() {
		archive, err := a.build(filepath.Join(cache, "liqo-testbed", "applications"))
		if err != nil {
			log.Fatalf("build %s: %v", a.name, err)
		}
		fmt.Println(archive)
	}
}

// build writes the archive unless it is there. The archive's folder names what it was built from.
func (a app) build(cache string) (string, error) {
	dir := filepath.Join(cache, strings.NewReplacer("/", "_", ":", "_").Replace(a.name))
	archive := filepath.Join(dir, "image.tar")
	source, err := a.source()
	if err != nil {
		return "", err
	}
	if have, err := os.ReadFile(archive + ".source"); err == nil && string(have) == source {
		return archive, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unpack := a.unpackPackages
	if a.module != "" {
		unpack = a.buildPrograms
	}
	shell := image.File{Source: "/bin/busybox", Path: "/bin/sh"}
	files, err := unpack(dir)
	if err != nil {
		return "", err
	}
	img := image.Image{Tags: []string{a.name}, Env: a.env, User: a.user, Files: append(files, shell)}
	if a.module != "" {
		img.Entrypoint = []string{files[0].Path}
	}
	if err := image.WriteFile(archive, img); err != nil {
		return "", err
	}
	return archive, os.WriteFile(archive+".source", []byte(source), 0o644)
}

// source describes everything the content of the image depends on.
func (a app) source() (string, error) {
	if a.module == "" {
		return fmt.Sprint(a), nil
	}
	sums, err := os.ReadFile(filepath.Join(here, a.module, "go.sum"))
	if err != nil {
		return "", err
	}
	return fmt.Sprint(a, string(sums)), nil
}

// here is this folder, as seen from the root of the repository.
const here = "testbed/applications"

var majorVersion = regexp.MustCompile(`/v\d+$`)

func (a app) buildPrograms(dir string) ([]image.File, error) {
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-tags=" + a.tags, "-o", dir + "/"}
	build := command("go", append(args, a.programs...)...)
	build.Dir = filepath.Join(here, a.module)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOGC=400")
	if err := build.Run(); err != nil {
		return nil, err
	}
	var files []image.File
	for _, p := range a.programs {
		name := path.Base(majorVersion.ReplaceAllString(p, ""))
		files = append(files, image.File{Source: filepath.Join(dir, name), Path: "/usr/local/bin/" + name})
	}
	return files, nil
}

// unpackPackages fetches the packages with all they depend on, as for an empty machine, and takes the files.
func (a app) unpackPackages(dir string) ([]image.File, error) {
	root := filepath.Join(dir, "root")
	if err := os.MkdirAll(filepath.Join(dir, "partial"), 0o755); err != nil {
		return nil, err
	}
	fetch := func() error {
		return command("apt-get", append([]string{"-o", "Dir::State::status=/dev/null", "-o", "Dir::Cache::archives=" + dir,
			"-o", "APT::Sandbox::User=root", "--download-only", "--yes", "--no-install-recommends", "install"}, a.packages...)...).Run()
	}
	if fetch() != nil { // perhaps the lists of packages are missing or old
		if err := errors.Join(command("apt-get", "update").Run(), fetch()); err != nil {
			return nil, err
		}
	}
	archives, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return nil, err
	}
	for _, archive := range archives {
		if err := command("dpkg", "-x", archive, root).Run(); err != nil {
			return nil, err
		}
	}
	return a.take(root)
}

var library = regexp.MustCompile(`/\S+`)

// take lists the files below root that the globs name, and the libraries they need.
func (a app) take(root string) ([]image.File, error) {
	libraries, err := filepath.Glob(root + "/lib/*-linux-gnu")
	if err != nil {
		return nil, err
	}
	libraries = append(libraries, strings.ReplaceAll(strings.Join(libraries, ":"), root+"/lib/", root+"/usr/lib/"))
	paths := map[string]bool{}
	for _, glob := range a.files {
		found, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if err := filepath.WalkDir(f, func(p string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					paths[p] = true
				}
				return err
			}); err != nil {
				return nil, err
			}
		}
	}
	ldd := exec.Command("ldd", slices.Collect(maps.Keys(paths))...)
	ldd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	needed, _ := ldd.Output() // its exit code is 1 for files that are no programs
	for _, lib := range library.FindAllString(string(needed), -1) {
		if !strings.HasSuffix(lib, ":") { // the name of a program
			paths[lib] = true
		}
	}
	var files []image.File
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		files = append(files, image.File{Source: p, Path: strings.TrimPrefix(p, root)})
	}
	return files, nil
}

func command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd
}
