// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides what becomes of the objects that an installation has by default, like its
// Networks and gateway templates. Defaults and live objects come in, and a plan of actions comes
// out. Start reading at Defaults.
package plan

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// Controller is the name of the controller, which is a label of all objects that it made.
const Controller = "defaults"

// helmRelease is the annotation by which Helm knows the objects of its releases.
const helmRelease = "meta.helm.sh/release-name"

// chartLabel is the label of objects that a chart made.
const chartLabel = "helm.sh/chart"

// Kind is a kind that defaults may have, as an empty object and list.
type Kind struct {
	Object desired.Object
	List   interface {
		metav1.ListInterface
		runtime.Object
	}
}

// Kinds returns the kinds that defaults may have.
func Kinds() []Kind {
	return []Kind{
		{&ipamv1alpha1.Network{}, &ipamv1alpha1.NetworkList{}},
		{&netv1beta1.WgGatewayServerTemplate{}, &netv1beta1.WgGatewayServerTemplateList{}},
		{&netv1beta1.WgGatewayClientTemplate{}, &netv1beta1.WgGatewayClientTemplateList{}},
		{&offv1beta1.VkOptionsTemplate{}, &offv1beta1.VkOptionsTemplateList{}},
	}
}

// Input is everything that Defaults needs.
type Input struct {
	// Uninstalling is true while the installation is being removed: nothing is made again.
	Uninstalling bool
	// Defaults are the objects that the installation has, without status.
	Defaults []*unstructured.Unstructured
	// Live are all objects of the kinds that defaults may have, in the namespace of Liqo.
	Live []*unstructured.Unstructured
}

// Defaults plans the objects of an installation. What a user changed on one stays unless the same
// field of the default changes.
//
//	default  live object        action
//	yes      none               create
//	yes      Helm's             none: the release has it
//	yes      the chart's        set all fields of the default, and keep what is beside them
//	yes      a user's           fill in what it lacks
//	yes      of another default change the fields that differ between the two defaults
//	none     as it was made     delete
//	none     otherwise          none: a user changed it, or copied one under another name
//
// An object is the chart's if a former chart made it without a release of Helm. Defaults deletes
// only objects with the label of this controller.
func Defaults(in Input) desired.Plan {
	if in.Uninstalling {
		return desired.Plan{}
	}
	var actions []desired.Action
	live := map[key]*unstructured.Unstructured{}
	for _, l := range in.Live {
		live[keyOf(l)] = l
	}
	for _, d := range in.Defaults {
		l := live[keyOf(d)]
		delete(live, keyOf(d))
		switch {
		case l == nil:
			made := labelled(merged(emptyOf(d), nil, contentOf(d)))
			actions = append(actions, desired.Action{Verb: desired.Create, Object: made})
		case ours(l):
			if want := updated(l, contentOf(d)); !reflect.DeepEqual(l, want) {
				actions = append(actions, desired.Action{Verb: desired.Merge, Before: l, Object: want})
			}
		}
	}
	for _, l := range in.Live {
		made := l.GetLabels()[desired.LabelController] == Controller
		if was := madeAs(l); live[keyOf(l)] != nil && ours(l) && made && was != nil && covers(l.Object, was) {
			actions = append(actions, desired.Action{Verb: desired.Delete, Object: l})
		}
	}
	return desired.Plan{Actions: actions}
}

// key identifies an object in the namespace of Liqo.
type key struct{ kind, name string }

func keyOf(o *unstructured.Unstructured) key { return key{o.GetKind(), o.GetName()} }

// ours reports whether an object is neither Helm's nor being deleted.
func ours(o *unstructured.Unstructured) bool {
	return o.GetAnnotations()[helmRelease] == "" && o.GetDeletionTimestamp() == nil
}

// emptyOf returns an object of a default's identity without content.
func emptyOf(d *unstructured.Unstructured) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(d.GroupVersionKind())
	o.SetNamespace(d.GetNamespace())
	o.SetName(d.GetName())
	return o
}

// labelled returns the object with the label of what the controller made.
func labelled(o *unstructured.Unstructured) *unstructured.Unstructured {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[desired.LabelController] = Controller
	o.SetLabels(labels)
	return o
}

// contentOf returns the part of a default that users may change, and its name, by which a copy of
// the object that it is made from is known.
func contentOf(d *unstructured.Unstructured) map[string]any {
	d = d.DeepCopy()
	content := map[string]any{"metadata": map[string]any{"name": d.GetName()}}
	for _, field := range []string{"labels", "annotations"} {
		if m, ok, _ := unstructured.NestedMap(d.Object, "metadata", field); ok {
			content["metadata"].(map[string]any)[field] = m
		}
	}
	for field, value := range d.Object {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, field) {
			content[field] = value
		}
	}
	return content
}

// madeAs returns the default that an object was last made from; nil if it was made from none.
func madeAs(o *unstructured.Unstructured) map[string]any {
	var content map[string]any
	if json.Unmarshal([]byte(o.GetAnnotations()[api.AnnotationDefault]), &content) != nil {
		return nil
	}
	return content
}

// updated returns what becomes of a live object whose default is now is.
func updated(o *unstructured.Unstructured, is map[string]any) *unstructured.Unstructured {
	was := madeAs(o)
	if was == nil && o.GetLabels()[chartLabel] != "" {
		return labelled(merged(o, map[string]any{}, is))
	}
	return merged(o, was, is)
}

// merged returns a copy of an object in which a default changed from was to is. Without was it gets
// only what it lacks.
func merged(o *unstructured.Unstructured, was, is map[string]any) *unstructured.Unstructured {
	out := o.DeepCopy()
	if was == nil {
		fill(out.Object, is)
	} else {
		change(out.Object, was, is)
	}
	text, err := json.Marshal(is)
	if err != nil { // it was decoded from YAML
		panic(err)
	}
	annotations := maps.Clone(out.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[api.AnnotationDefault] = string(text)
	out.SetAnnotations(annotations)
	return out
}

// fill adds the fields of a default that live lacks.
func fill(live, is map[string]any) {
	for k, value := range is {
		if into, ok := live[k].(map[string]any); ok {
			if from, ok := value.(map[string]any); ok {
				fill(into, from)
			}
		} else if live[k] == nil {
			live[k] = value
		}
	}
}

// change makes those changes to live that lead from was to is.
func change(live, was, is map[string]any) {
	for k, value := range was {
		if _, ok := is[k]; ok {
			continue
		}
		from, wasMap := value.(map[string]any)
		into, isMap := live[k].(map[string]any)
		if wasMap && isMap {
			change(into, from, nil)
		}
		if !wasMap || len(into) == 0 {
			delete(live, k)
		}
	}
	for k, value := range is {
		if equal(was[k], value) {
			continue
		}
		to, isMap := value.(map[string]any)
		into, liveMap := live[k].(map[string]any)
		if isMap && liveMap {
			from, _ := was[k].(map[string]any)
			change(into, from, to)
		} else {
			live[k] = value
		}
	}
}

// covers reports whether live still has all that was has. What live has beyond that may be defaults
// of the API server.
func covers(live, was map[string]any) bool {
	for k, value := range was {
		if from, ok := value.(map[string]any); ok {
			into, ok := live[k].(map[string]any)
			if (!ok && len(from) > 0) || !covers(into, from) {
				return false
			}
		} else if !equal(live[k], value) && !equalAmounts(live[k], value) {
			return false
		}
	}
	return true
}

// equalAmounts reports whether both are texts of one quantity: the API server writes 1000m as 1.
func equalAmounts(a, b any) bool {
	left, isText := a.(string)
	right, _ := b.(string)
	x, err := resource.ParseQuantity(left)
	y, wrong := resource.ParseQuantity(right)
	return isText && err == nil && wrong == nil && x.Cmp(y) == 0
}

// equal compares values of JSON: numbers may have been decoded as integers or not.
func equal(a, b any) bool {
	left, err := json.Marshal(a)
	if err != nil {
		return false
	}
	right, err := json.Marshal(b)
	return err == nil && string(left) == string(right)
}
