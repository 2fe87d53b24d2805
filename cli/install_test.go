// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	state "helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/cli"
)

// TestInterruptedUninstallation: after an interrupted uninstallation, install refuses to upgrade or
// replace the release, and a second uninstallation completes the first.
func TestInterruptedUninstallation(t *testing.T) {
	t.Parallel()
	const manifest = "{apiVersion: v1, kind: ConfigMap, metadata: {name: left, namespace: liqo, labels: {app.kubernetes.io/managed-by: Helm}, " +
		"annotations: {meta.helm.sh/release-name: liqo, meta.helm.sh/release-namespace: liqo}}}" // others are left by Helm 4
	s := newSession(t, "rome")
	s.apply(t, "rome", []byte("{apiVersion: v1, kind: Namespace, metadata: {name: liqo}}\n---\n"+manifest))
	clients, err := kubernetes.NewForConfig(s.clusters["rome"].Config)
	if err != nil {
		t.Fatal(err)
	}
	releases := storage.Init(driver.NewSecrets(clients.CoreV1().Secrets(api.Namespace)))
	if err := releases.Create(&release.Release{
		Name: api.ReleaseName, Namespace: api.Namespace, Version: 1, Manifest: manifest, Info: &release.Info{Status: state.StatusUninstalling},
	}); err != nil {
		t.Fatal(err)
	}
	install := "liqoctl install --kubeconfig $DIR/rome --pod-cidr 10.10.0.0/16 --service-cidr 10.96.0.0/16 --api-server-url https://203.0.113.7:6443"
	output := s.liqoctl(t, strings.Fields(install))
	output += s.liqoctl(t, strings.Fields("liqoctl uninstall --kubeconfig $DIR/rome --skip-confirm"))
	if diff := cmp.Diff(` INFO   Installer initialized
 INFO   Cluster configuration correctly retrieved
 INFO   Installation parameters correctly generated
 ERRO   release liqo was being uninstalled: end that with 'liqoctl uninstall', then install
[1]
 INFO   Pre-uninstall checks passed
 INFO   Liqo uninstalled
`, output); diff != "" {
		t.Errorf("the session differs (-want +got):\n%s", diff)
	}
	s.gone(t, "rome", []byte(manifest))
	if last, err := releases.Last(api.ReleaseName); err == nil {
		t.Errorf("the release is still there and %s", last.(*release.Release).Info.Status)
	}
}

// TestUninstallationNamesWhatItLeaves: Helm leaves what has lost the marks of the release, without an error.
func TestUninstallationNamesWhatItLeaves(t *testing.T) {
	t.Parallel()
	const manifest = "{apiVersion: v1, kind: ConfigMap, metadata: {name: unmarked, namespace: liqo}}"
	s := newSession(t, "rome")
	s.apply(t, "rome", []byte("{apiVersion: v1, kind: Namespace, metadata: {name: liqo}}\n---\n"+manifest))
	clients, err := kubernetes.NewForConfig(s.clusters["rome"].Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := storage.Init(driver.NewSecrets(clients.CoreV1().Secrets(api.Namespace))).Create(&release.Release{
		Name: api.ReleaseName, Namespace: api.Namespace, Version: 1, Manifest: manifest, Info: &release.Info{Status: state.StatusDeployed},
	}); err != nil {
		t.Fatal(err)
	}
	output := s.liqoctl(t, strings.Fields("liqoctl uninstall --kubeconfig $DIR/rome --skip-confirm"))
	if diff := cmp.Diff(` INFO   Pre-uninstall checks passed
 ERRO   uninstall release liqo: 1 resource(s) were not deleted because they are not owned by this release: [ConfigMap] unmarked; the release is gone, so delete them by hand if they are Liqo's
[1]
`, output); diff != "" {
		t.Errorf("the session differs (-want +got):\n%s", diff)
	}
}

// TestReleaseOfTheOriginal: a Helm release of the original is not upgraded, even without workloads.
func TestReleaseOfTheOriginal(t *testing.T) {
	t.Parallel()
	s := newSession(t, "rome")
	s.apply(t, "rome", []byte("{apiVersion: v1, kind: Namespace, metadata: {name: liqo}}"))
	clients, err := kubernetes.NewForConfig(s.clusters["rome"].Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := storage.Init(driver.NewSecrets(clients.CoreV1().Secrets(api.Namespace))).Create(&release.Release{
		Name: api.ReleaseName, Namespace: api.Namespace, Version: 1, Info: &release.Info{Status: state.StatusDeployed},
		Chart: &chart.Chart{Metadata: &chart.Metadata{Name: "liqo", Version: "v1.0.1"}},
	}); err != nil {
		t.Fatal(err)
	}
	output := s.liqoctl(t, strings.Fields("liqoctl install kubeadm --kubeconfig $DIR/rome"))
	if !strings.Contains(output, "ERRO   another Liqo is installed in namespace liqo (chart liqo-v1.0.1)") {
		t.Errorf("the installation ends with\n%s", output)
	}
}

// TestNewerKinds: an installation does not take fields from kinds in the cluster, unless the user
// wants it or a newer version is installed.
func TestNewerKinds(t *testing.T) {
	t.Parallel()
	s := newSession(t, "rome")
	c := s.client(t, "rome")
	add := func(kind, path string) {
		crd := &unstructured.Unstructured{}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind("CustomResourceDefinition")
		if err := c.Get(t.Context(), client.ObjectKey{Name: kind}, crd); err != nil {
			t.Fatal(err)
		}
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		if err != nil {
			t.Fatal(err)
		}
		fields := []string{"schema", "openAPIV3Schema"}
		for _, name := range strings.Split(path, ".") {
			fields = append(fields, "properties", name)
		}
		if err := unstructured.SetNestedField(versions[0].(map[string]any), map[string]any{"type": "string"}, fields...); err != nil {
			t.Fatal(err)
		}
		if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
			t.Fatal(err)
		}
		if err := c.Update(t.Context(), crd); err != nil {
			t.Fatal(err)
		}
	}
	install := "liqoctl install --kubeconfig $DIR/rome --pod-cidr 10.10.0.0/16 --service-cidr 10.96.0.0/16 --api-server-url https://203.0.113.7:6443 --dry-run"
	refused := " ERRO   kind ips.ipam.liqo.io in the cluster is newer than that of version v0.1.0, which has no field spec.later; " +
		"install the version of the cluster's kinds or a newer one, or use --skip-validation to lose this\n[1]\n"
	add("virtualnodes.offloading.liqo.io", "spec.template.spec.template.spec.workloadRef") // of Kubernetes 1.35
	if output := s.liqoctl(t, strings.Fields(install)); strings.Contains(output, "ERRO") {
		t.Errorf("the installation over kinds of another Kubernetes ends with\n%s", output)
	}
	add("ips.ipam.liqo.io", "spec.later")
	if output := s.liqoctl(t, strings.Fields(install)); !strings.HasSuffix(output, refused) {
		t.Errorf("the installation ends with\n%s", output)
	}
	if output := s.liqoctl(t, strings.Fields(install+" --skip-validation")); strings.Contains(output, "ERRO") {
		t.Errorf("the installation without validation ends with\n%s", output)
	}
	s.apply(t, "rome", []byte("{apiVersion: v1, kind: Namespace, metadata: {name: liqo}}\n---\n{apiVersion: apps/v1, kind: Deployment, "+
		"metadata: {name: liqo-controller-manager, namespace: liqo, labels: {app.kubernetes.io/version: v0.0.9}}, "+
		"spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: c}]}}}}"))
	if output := s.liqoctl(t, strings.Fields(install)); strings.Contains(output, "ERRO") {
		t.Errorf("the upgrade ends with\n%s", output)
	}
}

// TestFlagsInErrors: the flags that an error of install names are flags of the subcommand.
func TestFlagsInErrors(t *testing.T) {
	root := cli.Root("liqoctl", genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard})
	names, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	flag, checked := regexp.MustCompile(`--([a-z][a-z-]+)`), map[string]bool{}
	for _, name := range names {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			t.Fatal(err)
		}
		command := ""
		for _, line := range strings.Split(string(archive.Files[0].Data), "\n") {
			if typed, ok := strings.CutPrefix(line, "$ "); ok {
				command = typed
			}
			if !strings.HasPrefix(command, "liqoctl install ") || !strings.HasPrefix(line, " ERRO ") {
				continue
			}
			cmd, _, err := root.Find(strings.Fields(command)[1:])
			if err != nil {
				t.Fatal(err)
			}
			for _, named := range flag.FindAllStringSubmatch(quoted.ReplaceAllString(line, ""), -1) {
				checked[cmd.Name()] = true
				if cmd.Flag(named[1]) == nil {
					t.Errorf("%s: %q has no flag %s", name, cmd.CommandPath(), named[0])
				}
			}
		}
	}
	for _, provider := range []string{"install", "kubeadm", "kind", "k3s"} {
		if !checked[provider] {
			t.Errorf("no error of install %s names a flag", provider)
		}
	}
}
