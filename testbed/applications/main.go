// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command applications builds the images of the real programs that 'make test-applications' runs, or those of the
// modules in its arguments, and prints the archives. Programs come from Go modules, whose go.mod lies in a folder beside it, and from Debian packages, which
// are unpacked and not installed. All is kept in the testbed's cache.
package main

import (
	"context"
	"fmt"
	"log"
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
		{name: "docker.io/prom/prometheus:v3.16.0", module: "prometheus", user: "65534",
			tags: "remove_all_sd,enable_kubernetes_sd", programs: []string{
				"github.com/prometheus/prometheus/cmd/prometheus", "github.com/prometheus/prometheus/cmd/promtool"}},
		{name: "docker.io/library/traefik:v3.0", module: "traefik", programs: []string{
			"github.com/traefik/traefik/v3/cmd/traefik"}},
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
		if len(os.Args) > 1 && !slices.Contains(os.Args[1:], a.module) {
			continue
		}
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
	files, err := a.content(dir)
	if err != nil {
		return "", err
	}
	shell := image.File{Source: "/bin/busybox", Path: "/bin/sh"}
	img := image.Image{Tags: []string{a.name}, Env: a.env, User: a.user, Files: append(files, shell)}
	if a.module != "" {
		img.Entrypoint = []string{files[0].Path}
	}
	if err := image.WriteFile(archive, img); err != nil {
		return "", err
	}
	return archive, os.WriteFile(archive+".source", []byte(source), 0o644)
}

func (a app) content(dir string) ([]image.File, error) {
	if a.module == "" {
		return image.Debian(context.Background(), dir, a.packages, a.files)
	}
	return a.buildPrograms(dir)
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
	build := exec.Command("go", append(args, a.programs...)...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
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
