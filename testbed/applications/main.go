// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Command applications builds the images of the real programs that 'make test-applications' runs, or those of the
// modules in its arguments, and prints the archives. Programs come from Go modules, whose go.mod lies in a folder beside it, and from Debian packages, which
// are unpacked and not installed. All is kept in the testbed's cache.
package main

import (
	"cmp"
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
	folder   string // where the programs are in the image; empty = /usr/local/bin
	// links maps the paths of symbolic links in the first program's module to their targets. Module archives have
	// no symbolic links.
	links map[string]string
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
		{name: "docker.io/otel/opentelemetry-collector:0.149.0", module: "otel", user: "10001", programs: []string{
			"github.com/liqo-go/liqo/testbed/applications/otel",
			"github.com/open-telemetry/opentelemetry-collector-contrib/cmd/telemetrygen"}},
		tekton("controller"), tekton("webhook"), tekton("entrypoint"), tekton("nop"), tekton("workingdirinit"),
		argo("workflow-controller"), argo("argoexec"),
		certManager("controller"), certManager("webhook"), certManager("cainjector"),
	}
}

// certManager is an image of the chart of cert-manager, whose pods must not run as root.
func certManager(program string) app {
	return app{name: "quay.io/jetstack/cert-manager-" + program + ":v1.11.5", user: "1000", module: "certmanager",
		programs: []string{"github.com/cert-manager/cert-manager/cmd/" + program}}
}

// tekton is an image of Tekton Pipelines, which looks for its programs in a folder of ko, and runs none as root.
func tekton(program string) app {
	return app{name: "ghcr.io/tektoncd/pipeline/" + program + ":v1.3.0", user: "65532", module: "tekton", folder: "/ko-app",
		programs: []string{"github.com/tektoncd/pipeline/cmd/" + program}}
}

// argo is an image of the manifests of Argo Workflows, whose pods must not run as root.
func argo(program string) app {
	return app{name: "quay.io/argoproj/" + program + ":v3.7.0", user: "8737", module: "argo",
		programs: []string{"github.com/argoproj/argo-workflows/v3/cmd/" + program},
		links:    map[string]string{"workflow/executor/osspecific/signal_linux.go": "signal_darwin.go"}}
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
	if a.links != nil {
		modfile, err := a.complete(dir)
		if err != nil {
			return nil, err
		}
		args = append(args, "-modfile="+modfile)
	}
	build := a.command(append(args, a.programs...)...)
	build.Stdout = os.Stderr
	if err := build.Run(); err != nil {
		return nil, err
	}
	var files []image.File
	for _, p := range a.programs {
		name := path.Base(majorVersion.ReplaceAllString(p, ""))
		files = append(files, image.File{Source: filepath.Join(dir, name), Path: path.Join(cmp.Or(a.folder, "/usr/local/bin"), name)})
	}
	return files, nil
}

// command runs Go in the folder of the go.mod.
func (a app) command(args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Stderr, cmd.Dir = os.Stderr, filepath.Join(here, a.module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOGC=400")
	return cmd
}

// complete copies the module, adds its links, and returns a go.mod that leads there.
func (a app) complete(dir string) (modfile string, err error) {
	found, err := a.command("list", "-f", "{{.Module.Path}} {{.Module.Dir}}", a.programs[0]).Output()
	if err != nil {
		return "", err
	}
	module, folder, _ := strings.Cut(strings.TrimSpace(string(found)), " ")
	source := filepath.Join(dir, "source")
	if err := os.RemoveAll(source); err != nil {
		return "", err
	}
	if err := os.CopyFS(source, os.DirFS(folder)); err != nil {
		return "", err
	}
	for link, file := range a.links {
		if err := os.Symlink(file, filepath.Join(source, link)); err != nil {
			return "", err
		}
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(here, a.module, name))
		if err != nil {
			return "", err
		}
		if name == "go.mod" {
			text = fmt.Appendf(text, "\nreplace %s => %s\n", module, source)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "go.mod"), nil
}
