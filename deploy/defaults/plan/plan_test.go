// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/deploy/defaults/plan"
	"github.com/liqo-go/liqo/internal/desired"
)

// first and second are a default of two versions.
const first = `
apiVersion: offloading.liqo.io/v1beta1
kind: VkOptionsTemplate
metadata: {name: virtual-kubelet-default, namespace: liqo, labels: {version: "1", old: "1"}}
spec: {containerImage: "liqo:1", replicas: 1, extraArgs: [a], nodeExtraLabels: {zone: eu}, resources: {requests: {cpu: 1000m}}}
`

const second = `
apiVersion: offloading.liqo.io/v1beta1
kind: VkOptionsTemplate
metadata: {name: virtual-kubelet-default, namespace: liqo, labels: {version: "2"}}
spec: {containerImage: "liqo:2", replicas: 1, createNode: true}
`

// untouched is printed of an object made of the first version.
const untouched = `{"containerImage":"liqo:1","extraArgs":["a"],"nodeExtraLabels":{"zone":"eu"},"replicas":1,"resources":{"requests":{"cpu":"1000m"}}} old=1 version=1`

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return o
}

// carriedOut applies a plan to the live objects, as the API server would.
func carriedOut(t *testing.T, live []*unstructured.Unstructured, actions []desired.Action) []*unstructured.Unstructured {
	t.Helper()
	byName := map[string]*unstructured.Unstructured{}
	for _, l := range live {
		byName[l.GetName()] = l
	}
	for _, a := range actions {
		name := a.Object.GetName()
		delete(byName, name)
		if a.Verb == desired.Delete {
			continue
		}
		text, err := json.Marshal(a.Object)
		if err != nil {
			t.Fatal(err)
		}
		byName[name] = object(t, string(text))
	}
	var out []*unstructured.Unstructured
	for _, o := range byName {
		out = append(out, o)
	}
	return out
}

// made returns what a default of the first version became, with the user's changes.
func made(t *testing.T, change func(*unstructured.Unstructured)) []*unstructured.Unstructured {
	t.Helper()
	in := plan.Input{Defaults: []*unstructured.Unstructured{object(t, first)}}
	live := carriedOut(t, nil, plan.Defaults(in).Actions)
	if len(live) != 1 {
		t.Fatalf("made %d objects", len(live))
	}
	if change != nil {
		change(live[0])
	}
	return live
}

func set(t *testing.T, o *unstructured.Unstructured, value any, path ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
		t.Fatal(err)
	}
}

// TestDefaults: what a user changed stays unless the default of the same field changes. Planning twice changes nothing.
func TestDefaults(t *testing.T) {
	t.Parallel()
	helms := func(o *unstructured.Unstructured) {
		set(t, o, "liqo", "metadata", "annotations", "meta.helm.sh/release-name")
	}
	users := func(o *unstructured.Unstructured) { o.SetAnnotations(nil) }
	for _, test := range []struct {
		name, to string
		change   func(*unstructured.Unstructured)
		// want is the spec, with the labels that are not the controller's; empty = the object is gone.
		want string
	}{
		{name: "untouched", to: first, want: untouched},
		{name: "upgraded", to: second, want: `{"containerImage":"liqo:2","createNode":true,"replicas":1} version=2`},
		{
			name: "a user's change stays", to: second,
			want: `{"containerImage":"liqo:2","createNode":true,"nodeExtraLabels":{"room":"7"},"replicas":3} mine=1 version=2`,
			change: func(o *unstructured.Unstructured) {
				set(t, o, int64(3), "spec", "replicas")
				set(t, o, "7", "spec", "nodeExtraLabels", "room")
				set(t, o, "1", "metadata", "labels", "mine")
			},
		},
		{
			name: "a changed default wins", to: second,
			want:   `{"containerImage":"liqo:2","createNode":true,"replicas":1} version=2`,
			change: func(o *unstructured.Unstructured) { set(t, o, "mine", "spec", "containerImage") },
		},
		{name: "Helm's is left alone", to: second, change: helms, want: untouched},
		{
			name: "made by somebody else, it gets what it lacks", to: second,
			want: `{"containerImage":"mine","createNode":true,"replicas":2} version=0`,
			change: func(o *unstructured.Unstructured) {
				o.SetAnnotations(nil)
				o.SetLabels(map[string]string{"version": "0"})
				set(t, o, map[string]any{"containerImage": "mine", "replicas": int64(2)}, "spec")
			},
		},
		{
			name: "made by a former chart without Helm, it follows the default", to: second,
			want: `{"containerImage":"liqo:2","createNode":true,"extraArgs":["a"],"nodeExtraLabels":{"zone":"eu"},"replicas":1,"resources":{"requests":{"cpu":"1000m"}}} old=1 version=2`,
			change: func(o *unstructured.Unstructured) {
				o.SetAnnotations(nil)
				set(t, o, "liqo-0.1.0", "metadata", "labels", "helm.sh/chart")
			},
		},
		{name: "no default any more"},
		{
			name:   "no default any more, and an amount in the form of the API server",
			change: func(o *unstructured.Unstructured) { set(t, o, "1", "spec", "resources", "requests", "cpu") },
		},
		{
			name: "a copy under another name", want: untouched,
			change: func(o *unstructured.Unstructured) { o.SetName("mine") },
		},
		{
			name: "no default any more, but it was a user's before", want: untouched,
			change: func(o *unstructured.Unstructured) {
				unstructured.RemoveNestedField(o.Object, "metadata", "labels", desired.LabelController)
			},
		},
		{
			name: "no default any more, but a user's change", want: strings.Replace(untouched, "liqo:1", "mine", 1),
			change: func(o *unstructured.Unstructured) { set(t, o, "mine", "spec", "containerImage") },
		},
		{name: "no default any more, and Helm's", change: helms, want: untouched},
		{name: "no default any more, and never ours", change: users, want: untouched},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			in := plan.Input{Live: made(t, test.change)}
			if test.to != "" {
				in.Defaults = append(in.Defaults, object(t, test.to))
			}
			in.Live = carriedOut(t, in.Live, plan.Defaults(in).Actions)
			if again := plan.Defaults(in).Actions; len(again) > 0 {
				t.Errorf("planned again: %s of %v", again[0].Verb, again[0].Object)
			}
			var got string
			for _, o := range in.Live {
				got = printed(t, o)
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

func printed(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	text, err := json.Marshal(o.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	out := string(text)
	for _, label := range []string{"mine", "old", "version"} {
		if value := o.GetLabels()[label]; value != "" {
			out += fmt.Sprintf(" %s=%s", label, value)
		}
	}
	return out
}

// TestNothingIsMadeAgain while Liqo is being uninstalled, and the default on an object is not copied into itself.
func TestNothingIsMadeAgain(t *testing.T) {
	t.Parallel()
	in := plan.Input{Uninstalling: true, Defaults: []*unstructured.Unstructured{object(t, first)}}
	if actions := plan.Defaults(in).Actions; len(actions) > 0 {
		t.Errorf("planned %v", actions)
	}
	for _, o := range made(t, nil) {
		if strings.Contains(o.GetAnnotations()[api.AnnotationDefault], api.AnnotationDefault) {
			t.Error("the annotation holds itself")
		}
	}
}
