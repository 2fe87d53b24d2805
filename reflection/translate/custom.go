// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Custom pushes an object of any kind: all but its metadata, which is treated as that of
// every object, and its status, which is its own on either side.
func Custom(home, remote *unstructured.Unstructured, v View) *unstructured.Unstructured {
	if !reflects(home.GetAnnotations(), v.AllowList) {
		return nil
	}
	out := &unstructured.Unstructured{Object: map[string]any{}}
	if remote != nil {
		out = remote.DeepCopy()
	}
	meta := v.metadata(customMeta(home), customMeta(out), home.GetName())
	for key := range out.Object {
		if !ownOnEitherSide(key) {
			delete(out.Object, key)
		}
	}
	for key, value := range home.Object {
		if !ownOnEitherSide(key) {
			out.Object[key] = runtime.DeepCopyJSONValue(value)
		}
	}
	out.SetName(meta.Name)
	out.SetNamespace(meta.Namespace)
	out.SetLabels(meta.Labels)
	out.SetAnnotations(meta.Annotations)
	return out
}

func ownOnEitherSide(key string) bool { return key == "metadata" || key == "status" }

// customMeta is the part of the metadata that metadata looks at.
func customMeta(u *unstructured.Unstructured) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: u.GetName(), Namespace: u.GetNamespace(), Labels: u.GetLabels(), Annotations: u.GetAnnotations(),
		ManagedFields: u.GetManagedFields(),
	}
}
