// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/internal/apitest"
)

// warnings collects what an API server warns of.
type warnings struct {
	mu   sync.Mutex
	said []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, text)
}

// take gives what was said since it was last asked.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := w.said
	w.said = nil
	return said
}

// offloads is a cluster with what warns of the chart's templates of offloading, and a namespace demo.
func offloads(t *testing.T) *apitest.Server {
	t.Helper()
	server := apitest.Start(t)
	c, err := client.New(server.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := render(t, bases[0])
	if err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}}
	for _, doc := range strings.Split(rendered["liqo/templates/offloading.yaml"], "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &object.Object); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") {
			objects = append(objects, object)
		}
	}
	for _, object := range objects {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	return server
}

// hears enters a cluster and notes what it warns of.
func hears(t *testing.T, config *rest.Config) (client.Client, *warnings) {
	t.Helper()
	heard := &warnings{}
	config = rest.CopyConfig(config)
	config.WarningHandler = heard
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	return c, heard
}

// eventually waits for a policy, which is in force a moment after it was made.
func eventually(t *testing.T, warned func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) { return warned(), nil })
	if err != nil {
		t.Fatal("nobody was warned")
	}
}

// TestStricterStrategiesWarn: whoever forbids pods where they could go before is told that those which
// run stay, by any client; whoever allows more is not.
func TestStricterStrategiesWarn(t *testing.T) {
	t.Parallel()
	c, heard := hears(t, offloads(t).Config)
	o := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Name: "offloading", Namespace: "demo"}}
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	change := func(to offloadingv1beta1.PodOffloadingStrategy) []string {
		heard.take()
		o.Spec.PodOffloadingStrategy = to
		if err := c.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return heard.take()
	}
	stays := func(text string) bool { return strings.Contains(text, "stay there until they are deleted") }
	eventually(t, func() bool {
		change(offloadingv1beta1.LocalAndRemoteStrategy)
		return slices.ContainsFunc(change(offloadingv1beta1.RemoteStrategy), stays)
	})
	if said := change(offloadingv1beta1.LocalAndRemoteStrategy); len(said) > 0 {
		t.Errorf("warned without need: %v", said)
	}
	o.Labels = map[string]string{"a": "b"}
	if said := change(offloadingv1beta1.LocalAndRemoteStrategy); len(said) > 0 {
		t.Errorf("warned without need: %v", said)
	}
}

// TestDeletionsWarn: whoever deletes what extends namespaces is told that volumes go with the remote ones, and
// which verb asks first, also when nothing is deleted yet (--dry-run=server). Processes are not, nor is who
// deletes a consumer's copy.
func TestDeletionsWarn(t *testing.T) {
	t.Parallel()
	server := offloads(t)
	c, heard := hears(t, server.Config)
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "demo"} }
	remove := func(c client.Client, heard *warnings, object client.Object) string {
		t.Helper()
		heard.take()
		if err := c.Delete(t.Context(), object, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		return strings.Join(heard.take(), "\n")
	}
	verbs := map[client.Object]string{
		&offloadingv1beta1.NamespaceOffloading{ObjectMeta: named("offloading")}: "'liqoctl unoffload namespace' names them and asks",
		&offloadingv1beta1.VirtualNode{ObjectMeta: named("milan")}:              "'liqoctl delete virtualnode' names them and asks",
		&authv1beta1.ResourceSlice{ObjectMeta: named("milan")}:                  "'liqoctl unpeer' names them and asks",
	}
	copied := &authv1beta1.ResourceSlice{ObjectMeta: named("oslo")}
	copied.Labels = map[string]string{api.LabelReplicated: api.True}
	for _, object := range append(slices.Collect(maps.Keys(verbs)), copied) {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	for object, verb := range verbs {
		eventually(t, func() bool { return strings.Contains(remove(c, heard, object), verb) })
		for _, user := range []string{"system:serviceaccount:liqo:liqo-controller-manager", "system:serviceaccount:kube-system:generic-garbage-collector"} {
			process, heard := hears(t, server.ConfigFor(user, "system:masters"))
			if said := remove(process, heard, object); said != "" {
				t.Errorf("%s is warned when it deletes a %T: %s", user, object, said)
			}
		}
		other, heard := hears(t, server.ConfigFor("system:serviceaccount:delivery:deployer", "system:masters"))
		if said := remove(other, heard, object); strings.Count(said, verb) != 1 || strings.Contains(said, "\n") {
			t.Errorf("somebody else who deletes a %T hears %q", object, said)
		}
	}
	if said := remove(c, heard, copied); said != "" {
		t.Errorf("who deletes a copy is warned: %s", said)
	}
}

// TestNamespaceDeletionsWarn: whoever deletes a namespace is told of each volume at a provider that
// goes with it, and of no other, also when nothing is deleted yet (--dry-run=server). Processes are
// not.
func TestNamespaceDeletionsWarn(t *testing.T) {
	t.Parallel()
	server := offloads(t)
	c, heard := hears(t, server.Config)
	volume := func(namespace, claim, provider string) {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{GenerateName: "pvc-"}}
		if provider != "" {
			v.Labels = map[string]string{api.LabelRemoteClusterID: provider}
		}
		v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: quantity.MustParse("1Gi")}
		v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/data"}
		if claim != "" {
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: claim}
		}
		if err := c.Create(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	volume("demo", "db", "milan")
	volume("demo", "cache", "turin")
	volume("demo", "local", "")
	volume("demo", "", "milan")
	volume("other", "db", "milan")
	demo := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}
	remove := func(c client.Client, heard *warnings) []string {
		t.Helper()
		heard.take()
		if err := c.Delete(t.Context(), demo, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		return heard.take()
	}
	told := func(said []string) bool {
		text := strings.Join(said, "\n")
		return len(said) == 2 && strings.Contains(text, "claim db in cluster milan goes with the namespace") &&
			strings.Contains(text, "claim cache in cluster turin goes with the namespace")
	}
	eventually(t, func() bool { return told(remove(c, heard)) })
	const collector = "system:serviceaccount:kube-system:namespace-controller"
	process, processHeard := hears(t, server.ConfigFor(collector, "system:masters"))
	if said := remove(process, processHeard); len(said) > 0 {
		t.Errorf("a process is warned: %v", said)
	}
	if err := c.DeleteAllOf(t.Context(), &corev1.PersistentVolume{}); err != nil {
		t.Fatal(err)
	}
	var volumes corev1.PersistentVolumeList
	if err := c.List(t.Context(), &volumes); err != nil {
		t.Fatal(err)
	}
	unprotect := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	for i := range volumes.Items {
		if err := c.Patch(t.Context(), &volumes.Items[i], unprotect); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() bool { return len(remove(c, heard)) == 0 })
}
