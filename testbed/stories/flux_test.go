// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFlux installs, upgrades and uninstalls Liqo by the manifest of docs/gitops.md. Flux's controllers run beside the
// clusters, not in them. They compile for minutes, so it is part of `make soak` only.
func TestFlux(t *testing.T) {
	beginNew(t)
	runFlux(t)
	repository := httptest.NewServer(http.FileServer(http.Dir(helmRepository(t, "0.1.0", "0.1.1"))))
	t.Cleanup(repository.Close)
	page, err := os.ReadFile(filepath.Join(root, "examples", "gitops", "install-flux.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	manifest := strings.NewReplacer(
		"https://example.com/releases/v0.1.0", repository.URL,
		"https://203.0.113.7:6443", rome.api,
		"  values:", "  uninstall: {timeout: 30s}\n  values:\n    pullPolicy: Never").Replace(string(page))
	tellAll(t, []story{
		{"a HelmRelease installs Liqo", func(t *testing.T) {
			rome.apply(t, manifest)
			released(t, "0.1.0 deployed 1 TestSucceeded")
		}},
		{"controllers change nothing that Flux would change back", noDrift},
		{"a changed HelmRelease is an upgrade", func(t *testing.T) {
			manifest = strings.NewReplacer("version: 0.1.0", "version: 0.1.1",
				"  values:", "  values:\n    controllerManager: {replicas: 2}").Replace(manifest)
			rome.apply(t, manifest)
			released(t, "0.1.1 deployed 2 TestSucceeded")
			rome.kubectl(t, "-n", "liqo", "wait", "deployment/liqo-controller-manager",
				"--for=jsonpath={.status.readyReplicas}=2", patiently)
		}},
		{"a suspended HelmRelease leaves Liqo when it is deleted", func(t *testing.T) {
			rome.flux(t, "patch", "helmrelease", "liqo", "--type=merge", "-p", `{"spec":{"suspend":true}}`)
			rome.flux(t, "delete", "helmrelease", "liqo", patiently)
			rome.kubectl(t, "-n", "liqo", "rollout", "status", "deployment/liqo-controller-manager", patiently)
			rome.apply(t, manifest) // Flux takes the release over by an upgrade
			released(t, "0.1.1 deployed 3 TestSucceeded")
		}},
		{"a deleted HelmRelease uninstalls Liqo when nothing uses it", fluxUninstalls},
	})
}

// flux runs kubectl in the namespace of Flux.
func (c cluster) flux(t *testing.T, args ...string) string {
	t.Helper()
	return c.kubectl(t, append([]string{"-n", "flux-system"}, args...)...)
}

// helmRepository returns a folder with the chart in several versions and their index.
func helmRepository(t *testing.T, versions ...string) string {
	t.Helper()
	repository := t.TempDir()
	helm := func(args ...string) {
		t.Helper()
		if stdout, stderr, err := command("helm4", args...); err != nil {
			t.Fatalf("helm4 %s: %v\n%s%s", strings.Join(args, " "), err, stdout, stderr)
		}
	}
	for _, version := range versions {
		helm("package", filepath.Join(root, "deploy", "liqo"), "--version", version, "--destination", repository)
	}
	helm("repo", "index", repository)
	return repository
}

// runFlux builds Flux's controllers and runs them for rome until the test ends.
func runFlux(t *testing.T) {
	t.Helper()
	if out, err := testbed("build", "source-controller", "helm-controller"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"source-controller", "helm-controller"} {
		list := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/fluxcd/"+name)
		list.Dir, list.Env = filepath.Join(root, "testbed", "flux"), append(os.Environ(), "GOWORK=off")
		out, err := list.Output()
		if err != nil {
			t.Fatalf("find the kinds of %s: %v", name, err)
		}
		_, folder, _ := strings.Cut(string(out), `"Dir": "`)
		folder, _, _ = strings.Cut(folder, `"`)
		rome.kubectl(t, "apply", "--server-side", "-f", filepath.Join(folder, "config", "crd", "bases"))
	}
	rome.kubectl(t, "wait", "crd/helmreleases.helm.toolkit.fluxcd.io", "--for=condition=Established",
		patiently)
	rome.kubectl(t, "create", "namespace", "flux-system")
	artifacts := freeAddress(t)
	for name, args := range map[string][]string{
		"helm-controller": nil,
		"source-controller": {
			"--storage-path=" + t.TempDir(), "--storage-addr=" + artifacts, "--storage-adv-addr=" + artifacts,
		},
	} {
		args = append(args, "--metrics-addr=0", "--health-addr=0", "--log-encoding=console")
		controller := exec.CommandContext(t.Context(), filepath.Join(cache, "liqo-testbed", "flux", name), args...)
		controller.Env = append(os.Environ(), "KUBECONFIG="+rome.kubeconfig, "RUNTIME_NAMESPACE=flux-system")
		controller.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		var log strings.Builder
		controller.Stdout, controller.Stderr = &log, &log
		if err := controller.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ended := controller.Wait()
			if t.Failed() {
				t.Logf("%s: %v\n%s", name, ended, log.String())
			}
		})
	}
}

// freeAddress returns an address of this machine that nothing listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// released waits until Flux has released a version and expects what its history says: the version of the chart, the
// status and number of the release, and the outcome of its test.
func released(t *testing.T, want string) {
	t.Helper()
	rome.flux(t, "wait", "helmrelease/liqo", "--for=condition=Ready", patiently)
	const history = "jsonpath=" +
		"{.status.history[0].chartVersion} {.status.history[0].status} {.status.history[0].version} " +
		`{.status.conditions[?(@.type=="TestSuccess")].reason}`
	if got := rome.flux(t, "get", "helmrelease", "liqo", "-o", history); got != want {
		t.Errorf("the HelmRelease has %q, want %q", got, want)
	}
	rome.kubectl(t, "-n", "liqo", "rollout", "status", "deployment/liqo-controller-manager", "daemonset/liqo-fabric",
		patiently)
}

// noDrift has Flux compare the cluster with the chart once the controller has added what it adds.
func noDrift(t *testing.T) {
	eventually(t, "the webhook has its authority", func() (string, bool) {
		got, err := rome.ask("get", "mutatingwebhookconfiguration", "liqo-webhook", "-o",
			"jsonpath={.webhooks[0].clientConfig.caBundle}")
		return got, err == nil && got != ""
	})
	now := time.Now().Format(time.RFC3339Nano)
	rome.flux(t, "annotate", "helmrelease", "liqo", "reconcile.fluxcd.io/requestedAt="+now)
	rome.flux(t, "wait", "helmrelease/liqo", "--for=jsonpath={.status.lastHandledReconcileAt}="+now, patiently)
	released(t, "0.1.0 deployed 1 TestSucceeded")
	if events := rome.flux(t, "get", "events", "-o", "jsonpath={.items[*].reason}"); strings.Contains(events, "Drift") {
		t.Errorf("Flux found differences: %s", events)
	}
}

// fluxUninstalls deletes the HelmRelease while a namespace is offloaded. Flux fails and tries again until it no longer
// is.
func fluxUninstalls(t *testing.T) {
	rome.kubectl(t, "create", "namespace", "shop")
	rome.must(t, "offload", "namespace", "shop")
	rome.flux(t, "delete", "helmrelease", "liqo", "--wait=false")
	rome.flux(t, "wait", "helmrelease/liqo", "--for=condition=Released=False", patiently)
	rome.kubectl(t, "-n", "liqo", "rollout", "status", "deployment/liqo-controller-manager", patiently)
	rome.must(t, "unoffload", "namespace", "shop", "--skip-confirm")
	rome.flux(t, "wait", "--for=delete", "helmrelease/liqo", patiently)
	if left := rome.kubectl(t, "-n", "liqo", "get", "deployments,daemonsets", "-o", "name"); left != "" {
		t.Errorf("Flux left %s", left)
	}
	if left := rome.kubectl(t, "get", "networks.ipam.liqo.io,internalnodes", "-A", "-o", "name"); left != "" {
		t.Errorf("Liqo left %s", left)
	}
	rome.kubectl(t, "delete", "namespace", "shop", patiently)
}
