// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chartvalues "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/deploy"
	"github.com/liqo-go/liqo/internal/apitest"
)

// application holds the fields of an Application of Argo CD that the one of docs/gitops.md uses.
type application struct {
	APIVersion, Kind string
	Metadata         metav1.ObjectMeta
	Spec             struct {
		Project string
		Source  struct {
			RepoURL, Chart, TargetRevision string
			Helm                           struct{ ValuesObject map[string]any }
		}
		Destination struct{ Server, Namespace string }
		SyncPolicy  struct {
			Automated   struct{ Prune, SelfHeal bool }
			SyncOptions []string
		}
	}
}

func readApplication(t *testing.T) application {
	t.Helper()
	text, err := os.ReadFile("../examples/gitops/install-argocd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var a application
	if err := yaml.UnmarshalStrict(text, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// rendered returns what Argo CD applies: what 'helm template --include-crds' prints, without a cluster to look into.
func (a application) rendered(t *testing.T) *release.Release {
	t.Helper()
	run := action.NewInstall(action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler)))
	run.ReleaseName, run.Namespace = a.Metadata.Name, a.Spec.Destination.Namespace
	run.DryRunStrategy, run.IncludeCRDs = action.DryRunClient, true
	run.KubeVersion = &common.KubeVersion{Version: "v1.34.0", Major: "1", Minor: "34"}
	made, err := run.Run(load(t), a.Spec.Source.Helm.ValuesObject)
	if err != nil {
		t.Fatal(err)
	}
	return made.(*release.Release)
}

// objects returns the objects that Argo CD applies, in the order of their names.
func (a application) objects(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for _, doc := range strings.Split(a.rendered(t).Manifest, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatal(err)
		}
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
	key := func(o *unstructured.Unstructured) string {
		return o.GetKind() + "/" + o.GetNamespace() + "/" + o.GetName()
	}
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int { return strings.Compare(key(a), key(b)) })
	return all
}

// TestArgoCDRunsNoHooks: what Argo CD applies has no hook that it would take for one of its own. The page says for each
// hook of the chart what is done instead.
func TestArgoCDRunsNoHooks(t *testing.T) {
	t.Parallel()
	if hooks := readApplication(t).rendered(t).Hooks; len(hooks) > 0 {
		t.Errorf("Argo CD finds the hook %s", hooks[0].Name)
	}
	page, err := os.ReadFile("../docs/gitops.md")
	if err != nil {
		t.Fatal(err)
	}
	inCluster, err := render(t, minimal)
	if err != nil {
		t.Fatal(err)
	}
	found := func(pattern, text string) map[string]bool {
		all := map[string]bool{}
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all[match[1]] = true
		}
		return all
	}
	hooks := found(`(?m)^ +helm.sh/hook: (\S+)$`, inCluster["liqo/templates/hooks.yaml"])
	named := found("(?m)^\\| `([a-z-]+)`", string(page))
	if diff := cmp.Diff(hooks, named); diff != "" {
		t.Errorf("hooks (-chart +docs/gitops.md):\n%s", diff)
	}
}

// TestArgoCDRendersTheSameAgain: a chart that made something up at each rendering would never be in sync.
func TestArgoCDRendersTheSameAgain(t *testing.T) {
	t.Parallel()
	a := readApplication(t)
	if diff := cmp.Diff(a.objects(t), a.objects(t)); diff != "" {
		t.Errorf("a second rendering differs:\n%s", diff)
	}
	delete(a.Spec.Source.Helm.ValuesObject, "discovery")
	if cmp.Equal(a.objects(t), a.objects(t)) {
		t.Error("the page need not say that a cluster ID is required")
	}
}

// TestArgoCDStaysInSync applies and compares by the API server, as Argo CD does with the options of the Application.
// What Liqo's processes change on objects of the chart is no difference, so that no ignoreDifferences are needed.
func TestArgoCDStaysInSync(t *testing.T) {
	config := apitest.Start(t).Config
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	a := readApplication(t)
	objects := a.objects(t)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.Spec.Destination.Namespace}}
	if err := c.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	applied := func(o *unstructured.Unstructured, options ...client.ApplyOption) map[string]any {
		t.Helper()
		result := o.DeepCopy()
		options = append(options, client.FieldOwner("argocd-controller"), client.ForceOwnership)
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(result), options...); err != nil {
			t.Fatalf("apply %s %s: %v", o.GetKind(), o.GetName(), err)
		}
		result.SetManagedFields(nil)
		return result.Object
	}
	kinds := 0
	for _, o := range objects {
		applied(o)
		if o.GetKind() == "CustomResourceDefinition" {
			kinds++
		}
	}
	if crds, err := deploy.CRDs(); err != nil || kinds != len(crds) {
		t.Errorf("Argo CD applies %d of %d kinds: %v", kinds, len(crds), err)
	}
	webhooks := &admissionregistrationv1.MutatingWebhookConfiguration{}
	webhooks.Name = "liqo-webhook"
	change(t, c, webhooks, func() {
		for i := range webhooks.Webhooks {
			webhooks.Webhooks[i].ClientConfig.CABundle = config.CAData
		}
	})
	controller := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "liqo-controller-manager"}}
	change(t, c, controller, func() {
		metav1.SetMetaDataAnnotation(&controller.ObjectMeta, api.AnnotationUninstalling, api.True)
	})
	for _, o := range objects {
		live := o.DeepCopy()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), live); err != nil {
			t.Fatal(err)
		}
		live.SetManagedFields(nil)
		if diff := cmp.Diff(live.Object, applied(o, client.DryRunAll)); diff != "" {
			t.Errorf("%s %s is out of sync (-live +chart):\n%s", o.GetKind(), o.GetName(), diff)
		}
	}
}

// change changes an object of the cluster as Liqo's processes do.
func change(t *testing.T, c client.Client, o client.Object, edit func()) {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	before := client.MergeFrom(o.DeepCopyObject().(client.Object))
	edit()
	if err := c.Patch(t.Context(), o, before, client.FieldOwner("liqo/webhook")); err != nil {
		t.Fatal(err)
	}
}

// TestFluxIsNotToldToPrintLogs: where Flux is installed, hooks lack the annotation that makes its controller panic.
func TestFluxIsNotToldToPrintLogs(t *testing.T) {
	t.Parallel()
	chart := load(t)
	for _, c := range []struct{ flux, off bool }{{}, {flux: true}, {off: true}} {
		capabilities := common.DefaultCapabilities.Copy()
		if c.flux {
			capabilities.APIVersions = append(capabilities.APIVersions, "helm.toolkit.fluxcd.io/v2")
		}
		given := values(t, minimal)
		if c.off {
			given["hookLogs"] = false
		}
		full, err := chartvalues.ToRenderValues(chart, given, installation, capabilities)
		if err != nil {
			t.Fatal(err)
		}
		rendered, err := engine.RenderWithClientProvider(chart, full, inCluster())
		if err != nil {
			t.Fatal(err)
		}
		if logs := strings.Contains(rendered["liqo/templates/hooks.yaml"], "hook-output-log-policy"); logs == (c.flux || c.off) {
			t.Errorf("with Flux %v, switched off %v, hooks print logs: %v", c.flux, c.off, logs)
		}
	}
}
