// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// release is a version of Kubernetes that clusters can have.
type release struct {
	version    string // as 1.37.2
	toolchain  string // of Go, as GOTOOLCHAIN takes it; "": the one that runs this
	containerd bool   // needs containerd 2; others do with Debian's
}

// releases lists the versions that can be built, oldest first, one for each minor version.
var releases = []release{
	{version: "1.34.4"},
	{version: "1.35.4"},
	{version: "1.36.3"},
	{version: kubernetesVersion},
	{version: "1.38.0-beta.0", toolchain: "go1.27.2", containerd: true},
}

// defaultRelease returns the version in kubernetes/go.mod.
func defaultRelease() release { return release{version: kubernetesVersion} }

// releaseOf finds a release by its version or the first two numbers of it. "" is the default.
func releaseOf(version string) (release, error) {
	version = strings.TrimPrefix(cmp.Or(version, kubernetesVersion), "v")
	var known []string
	for _, r := range releases {
		if r.version == version || r.minor() == version {
			return r, nil
		}
		known = append(known, r.version)
	}
	return release{}, fmt.Errorf("version %q of Kubernetes is not known; use one of %s", version, strings.Join(known, ", "))
}

// minor is the first two numbers, as 1.37.
func (r release) minor() string { return strings.Join(strings.Split(r.version, ".")[:2], ".") }

// staging is the version of the modules that Kubernetes is released with, as v0.37.2.
func (r release) staging() string { return "v0" + strings.TrimPrefix(r.version, "1") }

// folder is where the programs of the release lie in the cache.
func (r release) folder() string { return "kubernetes-v" + r.version }

// module names the folder of the release's go.mod, see moduleDir.
func (r release) module() string {
	if r.version == kubernetesVersion {
		return "kubernetes"
	}
	return r.folder()
}

// releaseOfModule is the inverse of module; false: the module is not Kubernetes.
func releaseOfModule(module string) (release, bool) {
	i := slices.IndexFunc(releases, func(r release) bool { return r.module() == module })
	if i < 0 {
		return release{}, false
	}
	return releases[i], true
}

// toolchainOf is the Go toolchain that builds a module; "": the one that runs this.
func toolchainOf(module string) string {
	r, _ := releaseOfModule(module)
	return r.toolchain
}

// moduleDir is the folder of a go.mod: below testbed/, or in the cache if writeModule made it.
func (t Testbed) moduleDir(module string) string {
	if r, ok := releaseOfModule(module); ok && r.version != kubernetesVersion {
		return filepath.Join(t.Cache, "modules", module)
	}
	return filepath.Join(t.Repo, "testbed", module)
}

// canFollow reports whether a cluster may go from one release to another: to the next minor version, as kubeadm has it.
func (r release) canFollow(before release) bool {
	have, want := slices.Index(releases, before), slices.Index(releases, r)
	return want == have || want == have+1
}

// kubernetesModule holds the part of the output of 'go mod edit -json' that goMod reads.
type kubernetesModule struct {
	Go      string
	Godebug []struct{ Key, Value string }
	Require []struct{ Path, Version string }
	Replace []struct{ Old struct{ Path string } }
}

// writeModule makes the go.mod of a release that the repository has none of, from Kubernetes' own, which asks for
// modules of the folder staging/ and for a client of the etcd that the release is tested with.
func (t Testbed) writeModule(ctx context.Context, module string) error {
	r, isKubernetes := releaseOfModule(module)
	if !isKubernetes || r.version == kubernetesVersion {
		return nil
	}
	dir := t.moduleDir(module)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var downloaded struct{ GoMod string }
	if err := readJSON(t.goIn(ctx, module, "mod", "download", "-json", "k8s.io/kubernetes@v"+r.version), &downloaded); err != nil {
		return err
	}
	var kubernetes kubernetesModule
	if err := readJSON(t.goIn(ctx, module, "mod", "edit", "-json", downloaded.GoMod), &kubernetes); err != nil {
		return err
	}
	text, from := goMod(r, kubernetes), filepath.Join(dir, "from") // what go.mod was made from
	if former, err := os.ReadFile(from); err == nil && string(former) == text {
		return nil
	}
	fmt.Println("resolve the modules of Kubernetes", r.version)
	if err := writeFile(filepath.Join(dir, "go.mod"), []byte(text), 0o644); err != nil {
		return err
	}
	if _, err := run(t.goIn(ctx, module, "mod", "tidy")); err != nil {
		return err
	}
	return writeFile(from, []byte(text), 0o644)
}

// readJSON runs a command and reads what it prints.
func readJSON(cmd *exec.Cmd, into any) error {
	out, err := run(cmd)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(out), into)
}

// goMod is the go.mod from which the programs of a release are built.
func goMod(r release, kubernetes kubernetesModule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "module kubernetes\n\ngo %s\n\n", kubernetes.Go)
	for _, g := range kubernetes.Godebug {
		fmt.Fprintf(&b, "godebug %s=%s\n", g.Key, g.Value)
	}
	fmt.Fprintf(&b, "require k8s.io/kubernetes v%s\n", r.version)
	for _, m := range kubernetes.Require {
		if m.Path == "go.etcd.io/etcd/client/v3" {
			fmt.Fprintf(&b, "require go.etcd.io/etcd/server/v3 %s\n", m.Version)
		}
	}
	for _, m := range kubernetes.Replace {
		fmt.Fprintf(&b, "replace %[1]s => %[1]s %[2]s\n", m.Old.Path, r.staging())
	}
	for _, a := range kubernetesArtifacts(r) {
		fmt.Fprintf(&b, "tool %s\n", a.pkg)
	}
	return b.String()
}
