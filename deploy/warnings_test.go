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
	"github.com/liqo-go/liqo/internal/patience"
)

// warnings collects the warnings of an API server.
type warnings struct {
	mu    sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.texts = append(w.texts, text)
}

// take returns the warnings since the last call.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	texts := w.texts
	w.texts = nil
	return texts
}

// startWithPolicies starts an API server with the admission policies of the chart's templates
// offloading.yaml and webhooks.yaml, and a namespace demo.
func startWithPolicies(t *testing.T) *apitest.Server {
	t.Helper()
	server := apitest.Start(t)
	c, err := client.New(server.Config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := render(t, bases[0], "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")
	if err != nil {
		t.Fatal(err)
	}
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}}
	for _, doc := range strings.Split(rendered["liqo/templates/offloading.yaml"]+"\n---\n"+rendered["liqo/templates/webhooks.yaml"], "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &object.Object); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(object.GetKind(), "AdmissionPolicy") {
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

// clientWithWarnings returns a client and the warnings that it receives.
func clientWithWarnings(t *testing.T, config *rest.Config) (client.Client, *warnings) {
	t.Helper()
	warned := &warnings{}
	config = rest.CopyConfig(config)
	config.WarningHandler = warned
	c, err := client.New(config, client.Options{Scheme: scheme.New()})
	if err != nil {
		t.Fatal(err)
	}
	return c, warned
}

// eventually waits until a claim holds, as of a policy that is in force a moment after it was created.
// A failure prints the last value that look returned.
func eventually(t *testing.T, claim string, look func() (holds bool, seen any)) {
	t.Helper()
	var last any
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience.Limit, true, func(context.Context) (holds bool, _ error) {
		holds, last = look()
		return holds, nil
	}); err != nil {
		t.Fatalf("waited until %s: %v; last seen: %v", claim, err, last)
	}
}

// TestStricterStrategiesWarn: a change that forbids pods where they could run before is answered with
// the warning that running pods stay. A change that allows more is not.
func TestStricterStrategiesWarn(t *testing.T) {
	t.Parallel()
	c, warned := clientWithWarnings(t, startWithPolicies(t).Config)
	o := &offloadingv1beta1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Name: "offloading", Namespace: "demo"}}
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	change := func(to offloadingv1beta1.PodOffloadingStrategy) []string {
		warned.take()
		o.Spec.PodOffloadingStrategy = to
		if err := c.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return warned.take()
	}
	stays := func(text string) bool { return strings.Contains(text, "stay there until they are deleted") }
	eventually(t, "a stricter strategy is warned of", func() (bool, any) {
		change(offloadingv1beta1.LocalAndRemoteStrategy)
		texts := change(offloadingv1beta1.RemoteStrategy)
		return slices.ContainsFunc(texts, stays), texts
	})
	if texts := change(offloadingv1beta1.LocalAndRemoteStrategy); len(texts) > 0 {
		t.Errorf("warned without need: %v", texts)
	}
	o.Labels = map[string]string{"a": "b"}
	if texts := change(offloadingv1beta1.LocalAndRemoteStrategy); len(texts) > 0 {
		t.Errorf("warned without need: %v", texts)
	}
}

// TestDeletionsWarn: the deletion of an object that extends namespaces is answered with the warning
// that volumes are deleted with the remote namespaces, and with the verb of liqoctl that asks first.
// This holds for --dry-run=server, too. Processes are not warned, nor are deletions of a consumer's copy.
func TestDeletionsWarn(t *testing.T) {
	t.Parallel()
	server := startWithPolicies(t)
	c, warned := clientWithWarnings(t, server.Config)
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "demo"} }
	remove := func(c client.Client, warned *warnings, object client.Object) string {
		t.Helper()
		warned.take()
		if err := c.Delete(t.Context(), object, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		return strings.Join(warned.take(), "\n")
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
		eventually(t, "a warning names "+verb, func() (bool, any) {
			text := remove(c, warned, object)
			return strings.Contains(text, verb), text
		})
		for _, user := range []string{"system:serviceaccount:liqo:liqo-controller-manager", "system:serviceaccount:kube-system:generic-garbage-collector"} {
			process, warned := clientWithWarnings(t, server.ConfigFor(user, "system:masters"))
			if texts := remove(process, warned, object); texts != "" {
				t.Errorf("%s is warned when it deletes a %T: %s", user, object, texts)
			}
		}
		other, warned := clientWithWarnings(t, server.ConfigFor("system:serviceaccount:delivery:deployer", "system:masters"))
		if texts := remove(other, warned, object); strings.Count(texts, verb) != 1 || strings.Contains(texts, "\n") {
			t.Errorf("another user who deletes a %T is warned %q", object, texts)
		}
	}
	if texts := remove(c, warned, copied); texts != "" {
		t.Errorf("the deletion of a copy is answered with the warning %s", texts)
	}
}

// TestNamespaceDeletionsWarn: the deletion of a namespace is answered with a warning for each volume at
// a provider that is deleted with it, and for no other. This holds for --dry-run=server, too.
// Processes are not warned.
func TestNamespaceDeletionsWarn(t *testing.T) {
	t.Parallel()
	server := startWithPolicies(t)
	c, warned := clientWithWarnings(t, server.Config)
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
	remove := func(c client.Client, warned *warnings) []string {
		t.Helper()
		warned.take()
		if err := c.Delete(t.Context(), demo, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		return warned.take()
	}
	namesVolumes := func(texts []string) bool {
		text := strings.Join(texts, "\n")
		return len(texts) == 2 && strings.Contains(text, "claim db in cluster milan goes with the namespace") &&
			strings.Contains(text, "claim cache in cluster turin goes with the namespace")
	}
	eventually(t, "the warnings name the volumes", func() (bool, any) {
		texts := remove(c, warned)
		return namesVolumes(texts), texts
	})
	const collector = "system:serviceaccount:kube-system:namespace-controller"
	process, processWarned := clientWithWarnings(t, server.ConfigFor(collector, "system:masters"))
	if texts := remove(process, processWarned); len(texts) > 0 {
		t.Errorf("a process is warned: %v", texts)
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
	eventually(t, "no warning is left", func() (bool, any) {
		texts := remove(c, warned)
		return len(texts) == 0, texts
	})
}
