// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package fields_test

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/liqo-go/liqo/internal/apitest"
	"github.com/liqo-go/liqo/internal/fields"
)

// TestOurVersionLacksNothing: an API server of the version of our types has the fields that they have. A
// type without fields lacks all.
func TestOurVersionLacksNothing(t *testing.T) {
	t.Parallel()
	server := apitest.Start(t)
	c, err := discovery.NewDiscoveryClientForConfig(server.ConfigFor("anybody"))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []struct {
		schema.GroupVersionKind
		typed reflect.Type
	}{
		{corev1.SchemeGroupVersion.WithKind("Pod"), reflect.TypeFor[corev1.Pod]()},
		{corev1.SchemeGroupVersion.WithKind("Service"), reflect.TypeFor[corev1.Service]()},
		{corev1.SchemeGroupVersion.WithKind("ConfigMap"), reflect.TypeFor[corev1.ConfigMap]()},
		{corev1.SchemeGroupVersion.WithKind("Secret"), reflect.TypeFor[corev1.Secret]()},
		{corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), reflect.TypeFor[corev1.PersistentVolumeClaim]()},
		{networkingv1.SchemeGroupVersion.WithKind("Ingress"), reflect.TypeFor[networkingv1.Ingress]()},
		{discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), reflect.TypeFor[discoveryv1.EndpointSlice]()},
	} {
		document, err := fields.Read(t.Context(), c.RESTClient(), kind.GroupVersion())
		if err != nil {
			t.Fatal(err)
		}
		if missing, extra := document.Compare(kind.GroupVersionKind, kind.typed); len(missing)+len(extra) > 0 {
			t.Errorf("our %s lacks %v, and the server's %v", kind.Kind, missing, extra)
		}
		if missing, _ := document.Compare(kind.GroupVersionKind, reflect.TypeFor[struct{}]()); len(missing) == 0 {
			t.Errorf("the OpenAPI of %s names no field", kind.Kind)
		}
	}
}
