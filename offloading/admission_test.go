// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/offloading/plan"
)

// TestPatchOfAdmission shows that the patch makes of pods of all forms what AdmitPod and ReadmitPod return, and that
// fields of a newer API stay.
func TestPatchOfAdmission(t *testing.T) {
	terms := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpExists}}}}
	changes := map[string]func(*corev1.Pod){
		"tolerations": func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "gpu"}} },
		"every toleration": func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		},
		"annotations":   func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} },
		"affinity":      func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{} },
		"node affinity": func(p *corev1.Pod) { p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}} },
		"required terms": func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
			}}
		},
		"nothing": func(*corev1.Pod) {},
	}
	for name, change := range changes {
		for _, strategy := range []offloadingv1beta1.PodOffloadingStrategy{
			offloadingv1beta1.LocalStrategy, offloadingv1beta1.RemoteStrategy, offloadingv1beta1.LocalAndRemoteStrategy,
		} {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
			change(pod)
			want := plan.AdmitPod(pod, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: strategy}, "liqo", true)
			check(t, name+", "+string(strategy), pod, want)
			again := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
			change(again)
			check(t, name+", applied again", again, plan.ReadmitPod(again, want))
		}
	}
}

func check(t *testing.T, form string, before, want *corev1.Pod) {
	t.Helper()
	response := admitted(before, want)
	var patch []addition
	if response.Patch != nil {
		if err := json.Unmarshal(response.Patch, &patch); err != nil || *response.PatchType != "JSONPatch" {
			t.Fatal(err)
		}
	}
	sent := treeOf(t, before)
	sent["spec"].(map[string]any)["newer"] = api.True
	for _, step := range patch {
		addAt(t, sent, step)
	}
	expected := treeOf(t, want)
	expected["spec"].(map[string]any)["newer"] = api.True
	if diff := cmp.Diff(expected, sent); diff != "" || !response.Allowed {
		t.Errorf("a pod with %s, allowed: %v (-want +got):\n%s", form, response.Allowed, diff)
	}
}

func treeOf(t *testing.T, pod *corev1.Pod) (tree map[string]any) {
	t.Helper()
	text, err := json.Marshal(pod)
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// addAt does what RFC 6902 says about add, where only the last list of a path is one of a pod's.
func addAt(t *testing.T, in map[string]any, step addition) {
	t.Helper()
	keys := strings.Split(strings.TrimPrefix(step.Path, "/"), "/")
	for i, key := range keys {
		key = strings.ReplaceAll(key, "~1", "/")
		list, isList := in[key].([]any)
		switch {
		case step.Op != "add":
			t.Fatalf("operation %s", step.Op)
		case i == len(keys)-1:
			in[key] = step.Value
			return
		case isList && keys[i+1] == "-":
			in[key] = append(list, step.Value)
			return
		}
		inner, ok := in[key].(map[string]any)
		if !ok {
			t.Fatalf("%s leads nowhere at %s", step.Path, key)
		}
		in = inner
	}
}
