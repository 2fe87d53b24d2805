// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// podsOfANamespaceThatEndsAreFollowed until they have ended there, and nothing is written to it any more.
func podsOfANamespaceThatEndsAreFollowed(t *testing.T, w *world) {
	stop := w.reflect()
	w.create(w.home, pod("ends-with-it"))
	remote := w.runAt("ends-with-it", "10.20.1.70")
	var home corev1.Pod
	w.exists(w.home, &home, homeNS, "ends-with-it", func() error { return equal("10.71.1.70", home.Status.PodIP) })
	stop()

	var m offv1beta1.NamespaceMap
	w.must("read namespace map", w.home.Get(t.Context(), types.NamespacedName{Namespace: tenant, Name: provider}, &m))
	m.Spec.DesiredMapping = map[string]string{}
	m.Annotations = map[string]string{api.AnnotationEndingNamespaces: "elsewhere," + homeNS}
	w.must("write namespace map", w.home.Update(t.Context(), &m))
	m.Status.CurrentMapping = map[string]offv1beta1.RemoteNamespaceStatus{
		homeNS: {RemoteNamespace: remoteNS, Phase: offv1beta1.NamespaceTerminating}}
	w.must("write status of namespace map", w.home.Status().Update(t.Context(), &m))
	defer func() {
		w.must("read namespace map", w.home.Get(t.Context(), client.ObjectKeyFromObject(&m), &m))
		m.Annotations = nil
		w.must("write namespace map", w.home.Update(t.Context(), &m))
		w.mapNamespace(remoteNS)
	}()

	w.create(w.home, pod("made-at-the-end"))
	home.Labels["late"] = "yes"
	w.must("change", w.home.Update(t.Context(), &home))
	defer w.reflect()()
	remote.Status.PodIP, remote.Status.PodIPs = "10.20.1.71", []corev1.PodIP{{IP: "10.20.1.71"}}
	w.must("move", w.remote.Status().Update(t.Context(), remote))
	w.exists(w.home, &home, homeNS, "ends-with-it", func() error { return equal("10.71.1.71", home.Status.PodIP) })
	if w.shadow("ends-with-it").Labels["late"] != "" {
		t.Error("a label was written to a namespace that ends")
	}
	w.must("delete", w.home.Delete(t.Context(), &home, client.GracePeriodSeconds(30)))
	w.gone(w.remote, &offv1beta1.ShadowPod{}, remoteNS, "ends-with-it")
	w.must("read at home", w.home.Get(t.Context(), client.ObjectKeyFromObject(&home), &home))
	w.must("end at the provider", w.remote.Delete(t.Context(), remote, client.GracePeriodSeconds(0)))
	w.gone(w.home, &home, homeNS, "ends-with-it")
	late := types.NamespacedName{Namespace: remoteNS, Name: "made-at-the-end"}
	if err := w.remote.Get(t.Context(), late, &offv1beta1.ShadowPod{}); !apierrors.IsNotFound(err) {
		t.Errorf("a pod was made in a namespace that ends: %v", err)
	}
	w.must("delete", w.home.Delete(t.Context(), pod("made-at-the-end"), client.GracePeriodSeconds(30)))
	w.gone(w.home, &home, homeNS, "made-at-the-end")
}
