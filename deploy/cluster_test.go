// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	chartvalues "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/engine"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/deploy"
)

// found is the cluster in which a chart looks objects up.
type found []*unstructured.Unstructured

// inCluster returns a cluster with the namespace default, which every cluster has, and objects.
func inCluster(objects ...*unstructured.Unstructured) found {
	namespace := &unstructured.Unstructured{}
	namespace.SetAPIVersion("v1")
	namespace.SetKind("Namespace")
	namespace.SetName("default")
	return append(objects, namespace)
}

// GetClientFor implements Helm's engine.ClientProvider.
func (f found) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return ofKind{found: f, apiVersion: apiVersion, kind: kind}, true, nil
}

// ofKind reads the objects of a kind in a namespace.
type ofKind struct {
	dynamic.NamespaceableResourceInterface
	found                       found
	apiVersion, kind, namespace string
}

func (k ofKind) Namespace(name string) dynamic.ResourceInterface {
	k.namespace = name
	return k
}

func (k ofKind) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	for _, o := range k.found {
		if o.GetAPIVersion() == k.apiVersion && o.GetKind() == k.kind && o.GetNamespace() == k.namespace && o.GetName() == name {
			return o, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: k.kind}, name)
}

func (k ofKind) List(context.Context, metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	for _, o := range k.found {
		if o.GetAPIVersion() == k.apiVersion && o.GetKind() == k.kind && (k.namespace == "" || o.GetNamespace() == k.namespace) {
			list.Items = append(list.Items, *o)
		}
	}
	return list, nil
}

// TestHookChangesOwnKindsOnly: the job before an upgrade may change the kinds of this chart and no others.
func TestHookChangesOwnKindsOnly(t *testing.T) {
	t.Parallel()
	crds, err := deploy.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	var own, named []string
	for _, crd := range crds {
		own = append(own, crd.Name)
	}
	for _, obj := range objects(t, "") {
		var role rbacv1.ClusterRole
		if obj.GetKind() != "ClusterRole" || obj.GetName() != "liqo-pre-upgrade" {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			if slices.Contains(rule.Verbs, "patch") {
				named = append(named, rule.ResourceNames...)
			}
		}
	}
	if diff := cmp.Diff(own, named); diff != "" {
		t.Errorf("kinds (-own +named):\n%s", diff)
	}
}

// TestWithoutAClusterThereAreNoHooks: who applies a manifest of 'helm template' must not start the jobs of hooks.
func TestWithoutAClusterThereAreNoHooks(t *testing.T) {
	t.Parallel()
	c := load(t)
	full, err := chartvalues.ToRenderValues(c, values(t, minimal), common.ReleaseOptions{Name: "liqo", Namespace: "liqo"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := engine.Render(c, full)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range rendered {
		if strings.Contains(text, "helm.sh/hook") {
			t.Errorf("%s has a hook:\n%s", name, text)
		}
	}
	with, err := render(t, minimal)
	if err != nil {
		t.Fatal(err)
	}
	for _, hook := range []string{"pre-delete", "pre-upgrade", "test"} {
		if !strings.Contains(with["liqo/templates/hooks.yaml"], "helm.sh/hook: "+hook+"\n") {
			t.Errorf("no hook %s in a cluster", hook)
		}
	}
}

// TestWhatHelmMadeStaysInTheRelease: of the default objects the release has those that Helm made for it, and no others.
func TestWhatHelmMadeStaysInTheRelease(t *testing.T) {
	t.Parallel()
	ofRelease := func(release, name string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("ipam.liqo.io/v1alpha1")
		o.SetKind("Network")
		o.SetNamespace("liqo")
		o.SetName(name)
		if release != "" {
			o.SetAnnotations(map[string]string{"meta.helm.sh/release-name": release})
		}
		return o
	}
	c := load(t)
	capabilities := *common.DefaultCapabilities
	capabilities.APIVersions = append(capabilities.APIVersions, "ipam.liqo.io/v1alpha1")
	full, err := chartvalues.ToRenderValues(c, values(t, minimal), common.ReleaseOptions{Name: "liqo", Namespace: "liqo"}, &capabilities)
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := engine.RenderWithClientProvider(c, full,
		inCluster(ofRelease("liqo", "pod-cidr"), ofRelease("other", "service-cidr"), ofRelease("", "external-cidr")))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, doc := range strings.Split(rendered["liqo/templates/defaults.yaml"], "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			t.Fatal(err)
		}
		names = append(names, o.GetKind()+" "+o.GetName())
	}
	if got, want := strings.Join(names, ", "), "ConfigMap liqo-defaults, Network pod-cidr"; got != want {
		t.Errorf("the release has %s, want %s", got, want)
	}
}

// TestRangesInUseStay: an upgrade that would change the range of a Network fails before it changes anything.
func TestRangesInUseStay(t *testing.T) {
	t.Parallel()
	network := func(name, cidr string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "ipam.liqo.io/v1alpha1", "kind": "Network",
			"metadata": map[string]any{"name": name, "namespace": "liqo"}, "spec": map[string]any{"cidr": cidr},
		}}
	}
	c := load(t)
	capabilities := *common.DefaultCapabilities
	capabilities.APIVersions = append(capabilities.APIVersions, "ipam.liqo.io/v1alpha1")
	for ranges, want := range map[string]string{
		"podCIDRs: [10.10.0.0/16]":                             "",
		"podCIDRs: [10.10.0.0/16, 10.11.0.0/16]":               "",
		"podCIDRs: [10.10.0.0/16], externalCIDR: 10.71.0.0/16": "the range of Network external-cidr is 10.70.0.0/16 and cannot become 10.71.0.0/16: ",
		"podCIDRs: [10.11.0.0/16, 10.10.0.0/16]":               "the range of Network pod-cidr is 10.10.0.0/16 and cannot become 10.11.0.0/16: ",
	} {
		vals := values(t, "discovery: {config: {clusterID: rome}}\nipam: {serviceCIDR: 10.110.0.0/16, "+ranges+"}")
		full, err := chartvalues.ToRenderValues(c, vals, common.ReleaseOptions{Name: "liqo", Namespace: "liqo", IsUpgrade: true}, &capabilities)
		if err != nil {
			t.Fatal(err)
		}
		_, err = engine.RenderWithClientProvider(c, full,
			inCluster(network("pod-cidr", "10.10.0.0/16"), network("external-cidr", "10.70.0.0/16")))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want+"peers use it; uninstall first") {
			t.Errorf("%s: %v, want %q", ranges, err, want)
		}
	}
}
