// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/offloading/plan"
)

// tolerantPods returns forms of pods that are kept off virtual nodes, and others.
func tolerantPods() (tolerant, others map[string]*corev1.Pod) {
	zone := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{
			Containers:  []corev1.Container{{Name: "main", Image: "example.com/operator"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		}}
		change(p)
		return p
	}
	affinity := func(a corev1.Affinity) *corev1.Pod {
		return pod(func(p *corev1.Pod) { p.Spec.Affinity = &a })
	}
	terms := func(terms ...corev1.NodeSelectorTerm) *corev1.Pod {
		return affinity(corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}})
	}
	tolerations := func(t ...corev1.Toleration) *corev1.Pod {
		return pod(func(p *corev1.Pod) { p.Spec.Tolerations = t })
	}
	owner := func(kind string) *corev1.Pod {
		return pod(func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "x", UID: "x", Controller: new(true)}}
		})
	}
	byName := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}
	tolerant = map[string]*corev1.Pod{
		"everything":        pod(func(*corev1.Pod) {}),
		"every-execution":   tolerations(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}),
		"of-a-replica-set":  owner("ReplicaSet"),
		"annotated":         pod(func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }),
		"affinity":          affinity(corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}),
		"preferences":       affinity(corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}),
		"a-term":            terms(corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{zone}}),
		"for-a-time":        tolerations(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(60))}),
		"a-name-and-a-term": terms(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{byName}}, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{zone, zone}}),
	}
	others = map[string]*corev1.Pod{
		"nothing":         tolerations(),
		"another-key":     tolerations(corev1.Toleration{Key: "gpu", Operator: corev1.TolerationOpExists}),
		"no-execution":    tolerations(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}),
		"by-name":         tolerations(corev1.Toleration{Operator: corev1.TolerationOpExists}, corev1.Toleration{Key: api.VirtualNodeTaintKey, Operator: corev1.TolerationOpExists}),
		"selects":         pod(func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{api.LabelType: api.TypeVirtualNode} }),
		"of-the-class":    pod(func(p *corev1.Pod) { p.Spec.RuntimeClassName = new(api.RuntimeClassName) }),
		"of-a-daemon-set": owner("DaemonSet"),
		"placed":          pod(func(p *corev1.Pod) { p.Spec.NodeName = "n1" }),
	}
	return tolerant, others
}

// TestTolerantPodsStayHome: the policy of the chart makes of each form of a pod what KeepHome makes of it, and leaves
// pods of offloaded namespaces to the webhook.
func TestTolerantPodsStayHome(t *testing.T) {
	t.Parallel()
	c, err := client.New(startWithPolicies(t).Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	offerClass(t, c)
	create := func(form *corev1.Pod, namespace string) *corev1.Pod {
		p := form.DeepCopy()
		p.GenerateName, p.Namespace = "p", namespace
		if err := c.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	tolerant, others := tolerantPods()
	eventually(t, "the policy is in force", func() (bool, any) {
		p := create(tolerant["everything"], "demo")
		return p.Spec.Affinity != nil, p.Spec
	})
	all := maps.Clone(tolerant)
	maps.Copy(all, others)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		want, got := plan.KeepHome(all[name], api.RuntimeClassName), create(all[name], "demo")
		if (tolerant[name] != nil) != (want.Annotations[api.AnnotationAdmitted] != "") {
			t.Errorf("%s: KeepHome decides otherwise than this test", name)
		}
		if diff := cmp.Diff(want.Spec.Affinity, got.Spec.Affinity, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: affinity (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(want.Annotations, got.Annotations); diff != "" {
			t.Errorf("%s: annotations (-want +got):\n%s", name, diff)
		}
	}
	offloaded := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "offloaded", Labels: map[string]string{api.LabelSchedulingEnabled: api.True}}}
	if err := c.Create(t.Context(), offloaded); err != nil {
		t.Fatal(err)
	}
	if p := create(tolerant["everything"], "offloaded"); p.Spec.Affinity != nil {
		t.Errorf("a pod of an offloaded namespace: %v", p.Spec.Affinity)
	}
}

func offerClass(t *testing.T, c client.Client) {
	t.Helper()
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: api.RuntimeClassName}, Handler: "liqo"}
	if err := c.Create(t.Context(), class); err != nil {
		t.Fatal(err)
	}
}

// TestTolerantPodsAreSentToTheWebhook: where the API server has no such policies, a webhook sees the pods that
// KeepHome changes, and no other pod waits for it. While nobody answers, all pods are created.
func TestTolerantPodsAreSentToTheWebhook(t *testing.T) {
	t.Parallel()
	c, err := client.New(apitest.Start(t).Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	offerClass(t, c)
	rendered, err := render(t, bases[0])
	if err != nil {
		t.Fatal(err)
	}
	config := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := yaml.Unmarshal([]byte(rendered["liqo/templates/webhooks.yaml"]), config); err != nil {
		t.Fatal(err)
	}
	config.Webhooks = slices.DeleteFunc(config.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
		return w.Name != "tolerantpod.mutate.liqo.io"
	})
	config.Webhooks[0].ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")}
	if err := c.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	try := func(form *corev1.Pod, namespace string) error {
		p := form.DeepCopy()
		p.GenerateName, p.Namespace = "p", namespace
		return c.Create(t.Context(), p)
	}
	tolerant, others := tolerantPods()
	for name, form := range tolerant {
		if err := try(form, "default"); err != nil {
			t.Errorf("%s, while nobody answers: %v", name, err)
		}
	}
	config.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Fail)
	if err := c.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the webhook is asked", func() (bool, any) {
		err := try(tolerant["everything"], "default")
		return err != nil, err
	})
	for name, form := range tolerant {
		if err := try(form, "default"); err == nil {
			t.Errorf("%s is not sent to the webhook", name)
		}
	}
	for name, form := range others {
		if err := try(form, "default"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
