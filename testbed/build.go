// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Versions of what is built. They are those of the go.mod files beside it.
const (
	kubernetesVersion    = "1.37.2"
	coreDNSVersion       = "1.14.6"
	metricsServerVersion = "0.8.0"
	kwokVersion          = "0.8.0"
	flannelVersion       = "0.28.10"
	kubeRouterVersion    = "2.1.0"
	registryVersion      = "3.1.2"
)

// artifact is one program built from Go modules and kept in the cache.
type artifact struct {
	name   string
	module string // folder of the go.mod, see moduleDir
	pkg    string
	out    string // relative to the cache
}

// kubernetesArtifacts are the programs of Kubernetes that a cluster consists of.
func kubernetesArtifacts(r release) []artifact {
	var all []artifact
	for _, pkg := range []string{
		"k8s.io/kubernetes/cmd/kube-apiserver", "go.etcd.io/etcd/server/v3",
		"k8s.io/kubernetes/cmd/kube-controller-manager", "k8s.io/kubernetes/cmd/kube-scheduler",
		"k8s.io/kubernetes/cmd/kubelet", "k8s.io/kubernetes/cmd/kube-proxy", "k8s.io/kubernetes/cmd/kubectl",
	} {
		name := path.Base(pkg)
		if name == "v3" {
			name = "etcd"
		}
		all = append(all, artifact{name, r.module(), pkg, r.folder() + "/" + name})
	}
	return all
}

// defaultArtifacts are what a cluster needs.
func defaultArtifacts() []artifact {
	return append(kubernetesArtifacts(defaultRelease()),
		artifact{"coredns", "kubernetes", "./coredns", "coredns-v" + coreDNSVersion + "/coredns"},
		artifact{"pause", ".", "./images/pause", "images/pause"},
		artifact{"echo", ".", "./images/echo", "images/echo"},
	)
}

// allArtifacts adds what only some tests use. It is built when it is asked for by name, or by the name of its image.
func allArtifacts() []artifact {
	return append(defaultArtifacts(),
		artifact{"agnhost", "kubernetes", "k8s.io/kubernetes/test/images/agnhost", defaultRelease().folder() + "/agnhost"},
		artifact{metricsServer, "kubernetes", "./metrics-server", "metrics-server-v" + metricsServerVersion + "/" + metricsServer},
		artifact{devices, "kubernetes", "./devices", "images/devices"},
		networkArtifact("flannel", defaultRelease()), networkArtifact(kubeRouter, defaultRelease()), registryArtifact(),
		artifact{"kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", "kwok-v" + kwokVersion + "/kwok"},
		fluxArtifact("source-controller"), fluxArtifact("helm-controller"))
}

// namedArtifacts returns the artifacts that have one of the names.
func namedArtifacts(names []string) []artifact {
	return slices.DeleteFunc(allArtifacts(), func(a artifact) bool { return !slices.Contains(names, a.name) })
}

// kubeRouter enforces NetworkPolicies.
const kubeRouter = "kuberouter"

// networkPrograms run on the workers of clusters with such a CNI.
var networkPrograms = map[string]string{cniFlannel: "flannel", cniPolicies: kubeRouter}

// networkArtifact is a program of networkPrograms. It lies beside kubelet, where nodes look for programs.
func networkArtifact(name string, r release) artifact {
	return artifact{name, name, ".", r.folder() + "/" + name}
}

// fluxArtifact is a controller of Flux, which only TestFlux runs.
func fluxArtifact(name string) artifact {
	return artifact{name, "flux", "github.com/fluxcd/" + name, "flux/" + name}
}

// artifacts are the programs on the cluster's nodes, besides those of the machine.
func (c Cluster) artifacts() []artifact {
	r, _ := releaseOf(c.Kubernetes) // refused before if it is unknown
	all := kubernetesArtifacts(r)
	if r.containerd {
		for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
			all = append(all, artifact{name, "containerd", "github.com/containerd/containerd/v2/cmd/" + name, r.folder() + "/" + name})
		}
	}
	if program := networkPrograms[c.CNI]; program != "" {
		all = append(all, networkArtifact(program, r))
	}
	return all
}

// binary is the file name that 'go build' gives the program.
func (a artifact) binary() string {
	if a.pkg == "." {
		return path.Base(a.module)
	}
	return path.Base(strings.TrimSuffix(a.pkg, "/v3"))
}

// kubernetesFlags stamp the version into the binaries: without it they say v0.0.0.
// Date and commit are fixed, so that the same source gives the same binary.
func kubernetesFlags(r release) string {
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, kv := range []string{"gitVersion=v" + r.version, "gitMajor=1", "gitMinor=" + strings.TrimPrefix(r.minor(), "1."), "gitTreeState=clean",
			"gitCommit=" + strings.Repeat("0", 40), "buildDate=2026-01-01T00:00:00Z"} {
			flags = append(flags, "-X", pkg+"."+kv)
		}
	}
	return strings.Join(flags, " ")
}

func (a artifact) ldflags() string {
	if r, ok := releaseOfModule(a.module); ok {
		return kubernetesFlags(r)
	}
	return "-s -w"
}

// build builds what is not in the cache, and the images made of it.
func (t Testbed) build(ctx context.Context, artifacts []artifact) error {
	stale := map[string]map[artifact]string{} // digests of the sources, by module
	written := map[string]bool{}
	for _, a := range artifacts {
		if !written[a.module] {
			if err := t.writeModule(ctx, a.module); err != nil {
				return fmt.Errorf("write the go.mod of %s: %w", a.module, err)
			}
			written[a.module] = true
		}
		digest, err := t.sourceDigest(a)
		if err != nil {
			return err
		}
		out := filepath.Join(t.Cache, a.out)
		_, missing := os.Stat(out)
		if have, err := os.ReadFile(out + ".source"); err == nil && string(have) == digest && missing == nil {
			continue
		}
		if stale[a.module] == nil {
			stale[a.module] = map[artifact]string{}
		}
		stale[a.module][a] = digest
	}
	for _, module := range slices.Sorted(maps.Keys(stale)) {
		if err := t.buildModule(ctx, module, stale[module]); err != nil {
			return err
		}
	}
	for _, a := range artifacts {
		if err := t.packImage(a.name); err != nil {
			return err
		}
	}
	return nil
}

// buildModule builds programs of one module with one 'go build', so that packages compile while
// another program links. The values are the digests of their sources.
func (t Testbed) buildModule(ctx context.Context, module string, artifacts map[artifact]string) error {
	built := filepath.Join(t.Cache, "build") // beside their places, so that programs can be moved there
	if err := os.RemoveAll(built); err != nil {
		return err
	}
	if err := os.MkdirAll(built, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(built)
	began := time.Now()
	programs := slices.Collect(maps.Keys(artifacts))
	names := strings.Join(artifactNames(programs), ", ")
	fmt.Println("build", names)
	var pkgs []string
	for _, a := range programs {
		pkgs = append(pkgs, a.pkg)
	}
	list := t.goIn(ctx, module, append([]string{"list", "-deps", "-f", "{{if .Stale}}{{.ImportPath}}{{end}}"}, pkgs...)...)
	list.Stderr = os.Stderr
	stale, err := list.Output()
	if err != nil {
		return fmt.Errorf("list packages of %s: %w", names, err)
	}
	args := []string{"build", "-v", "-ldflags=" + programs[0].ldflags(), "-o", built + "/"}
	if err := runWithProgress(t.goIn(ctx, module, append(args, pkgs...)...), bytes.Count(stale, []byte("\n"))); err != nil {
		return fmt.Errorf("build %s: %w", names, err)
	}
	fmt.Printf("built in %.1fs\n", time.Since(began).Seconds())
	for a, digest := range artifacts {
		if err := t.store(a, filepath.Join(built, a.binary()), digest); err != nil {
			return err
		}
	}
	return nil
}

// goIn is a go command in the folder of a go.mod, see moduleDir.
func (t Testbed) goIn(ctx context.Context, module string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = t.moduleDir(module)
	// Compilers that collect garbage less often take a sixth less CPU (k8s.io/api: 115 s and 95 s).
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS=linux", "GOGC=400",
		"GOFLAGS="+os.Getenv("GOFLAGS")+" -trimpath -buildvcs=false")
	if toolchain := toolchainOf(module); toolchain != "" {
		cmd.Env = append(cmd.Env, "GOTOOLCHAIN="+toolchain)
	}
	return cmd
}

// store moves a new binary to its place, and notes what it was built from.
func (t Testbed) store(a artifact, binary, digest string) error {
	out := filepath.Join(t.Cache, a.out)
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	if err := os.Rename(binary, out); err != nil {
		return err
	}
	return writeFile(out+".source", []byte(digest), 0o644)
}

// sourceDigest covers what decides a binary: toolchain, flags, module files, own sources.
func (t Testbed) sourceDigest(a artifact) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, cmp.Or(toolchainOf(a.module), runtime.Version()), a.pkg, a.ldflags())
	module := t.moduleDir(a.module)
	files := []string{filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum")}
	if strings.HasPrefix(a.pkg, ".") {
		own, err := filepath.Glob(filepath.Join(module, a.pkg, "*.go"))
		if err != nil {
			return "", err
		}
		files = append(files, own...)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil && !(errors.Is(err, os.ErrNotExist) && filepath.Base(f) == "go.sum") {
			return "", err
		}
		fmt.Fprintln(h, filepath.Base(f), len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

var packageLine = regexp.MustCompile(`^[\w.~/-]+$`)

// runWithProgress counts the packages that "go build -v" names and shows the count: on
// a terminal every second, elsewhere twice a minute. Everything else it prints is kept
// for the error. About all packages are to be compiled.
func runWithProgress(cmd *exec.Cmd, all int) error {
	out, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	packages := make(chan int)
	var message bytes.Buffer
	go func() {
		defer close(packages)
		lines := bufio.NewScanner(out)
		for n := 1; lines.Scan(); {
			if packageLine.MatchString(lines.Text()) {
				packages <- n
				n++
				continue
			}
			fmt.Fprintln(&message, lines.Text())
		}
		if err := lines.Err(); err != nil {
			fmt.Fprintln(&message, err)
			_, _ = io.Copy(io.Discard, out) // else the build waits for a reader
		}
	}()
	showProgress(os.Stdout, packages, all)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w\n%s", err, message.String())
	}
	return nil
}

func showProgress(w *os.File, packages <-chan int, all int) {
	every, format := 30*time.Second, "%s\n"
	if info, err := w.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		every, format = time.Second, "\r%s\033[K"
		defer io.WriteString(w, "\r\033[K")
	}
	began, count := time.Now(), 0
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case n, open := <-packages:
			if !open {
				return
			}
			count = n
		case <-tick.C:
			fmt.Fprintf(w, format, progress(time.Since(began), count, all))
		}
	}
}

// progress says what is done after a time, and how long the rest takes if packages go on as fast.
func progress(elapsed time.Duration, done, all int) string {
	if done >= all {
		return fmt.Sprintf("%d packages, linking", done)
	}
	text := fmt.Sprintf("%d of about %d packages", done, all)
	if done == 0 {
		return text
	}
	switch left := int(math.Ceil(elapsed.Minutes() / float64(done) * float64(all-done))); left {
	case 1:
		return text + ", 1 minute left"
	default:
		return fmt.Sprintf("%s, %d minutes left", text, left)
	}
}

// artifactNames are for messages.
func artifactNames(all []artifact) []string {
	var names []string
	for _, a := range all {
		names = append(names, a.name)
	}
	slices.Sort(names)
	return names
}
