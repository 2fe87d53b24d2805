// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/apitest"
)

// TestOlderKubernetes: home is of 1.36, with the beta of ClusterTrustBundles, and the provider of 1.35.
func TestOlderKubernetes(t *testing.T) {
	t.Parallel()
	home := apitest.Start(t, "--emulated-version=1.36", "--feature-gates=ClusterTrustBundle=true,ClusterTrustBundleProjection=true",
		"--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true")
	w := newWorldOf(t, home, apitest.Start(t, "--emulated-version=1.35"))
	t.Run("tokens are renewed without trust of home", func(t *testing.T) {
		here := *w
		here.T = t
		tokensWithoutTrust(t, &here)
	})
	t.Run("the name of a Service is refused", func(t *testing.T) {
		here := *w
		here.T = t
		serviceNameIsRefused(t, &here)
	})
}

// tokensWithoutTrust: home lets pods project ClusterTrustBundles of v1beta1. A pod that a version started which did not
// bring them keeps its tokens fresh, and what it has of bundles. A new one says what it waits for, also if a former one
// of its name had tokens.
func tokensWithoutTrust(t *testing.T, w *world) {
	for _, name := range []string{"started", "new", "next"} {
		p := pod(name)
		p.Spec.Volumes[0].Projected.Sources = append(p.Spec.Volumes[0].Projected.Sources,
			corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Path: "ca.pem", Name: new("ours")}})
		w.create(w.home, p)
		if p.Spec.Volumes[0].Projected.Sources[1].ClusterTrustBundle == nil {
			t.Fatal("the API server dropped the projection")
		}
		if name == "next" {
			p.UID = "former"
		}
		if name != "new" {
			w.create(w.remote, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{
					Name: api.ServiceAccountTokenSecretName(name), Namespace: remoteNS,
					Labels: map[string]string{
						api.LabelOrigin: consumer, api.LabelDestination: provider, api.LabelNodeName: node, api.LabelServiceAccountName: "default",
					},
					Annotations: map[string]string{
						api.AnnotationServiceAccountForPodName: name, api.AnnotationServiceAccountForPodUID: string(p.UID),
						api.AnnotationServiceAccountExpiration: "2026-01-15T13:00:00Z",
					},
				},
				Data: map[string][]byte{"api.token": []byte("expired"), "_api.ca.pem": []byte("brought")},
			})
		}
	}
	defer w.reflect()()
	var secret corev1.Secret
	w.exists(w.remote, &secret, remoteNS, api.ServiceAccountTokenSecretName("started"), func() error {
		if parts := strings.Split(string(secret.Data["api.token"]), "."); len(parts) != 3 {
			return fmt.Errorf("the token is %q", secret.Data["api.token"])
		}
		return equal("brought", string(secret.Data["_api.ca.pem"]))
	})
	for _, name := range []string{"new", "next"} {
		w.event(name, "FailedSATokensReflection", "this cluster does not serve them as certificates.k8s.io/v1; upgrade it to Kubernetes 1.37")
	}
	w.must("read", w.remote.Get(t.Context(), types.NamespacedName{Namespace: remoteNS, Name: api.ServiceAccountTokenSecretName("next")}, &secret))
	if got := string(secret.Data["api.token"]); got != "expired" {
		t.Errorf("the Secret of the former pod has the token %q of one that waits", got)
	}
}

// serviceNameIsRefused: names may begin with a digit from 1.36 on. The user is told once, and other Services follow.
func serviceNameIsRefused(t *testing.T, w *world) {
	defer w.reflect()()
	service := func(name string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: homeNS}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	}
	refused := service("1web")
	w.create(w.home, refused)
	w.event("1web", "FailedReflection", `metadata.name: Invalid value: "1web": a DNS-1035 label must`)
	refused.Labels = map[string]string{"try": "again"}
	w.must("update", w.home.Update(t.Context(), refused))
	w.create(w.home, service("web"))
	w.exists(w.remote, &corev1.Service{}, remoteNS, "web")
	var events corev1.EventList
	w.must("list events", w.home.List(t.Context(), &events, client.InNamespace(homeNS)))
	for _, e := range events.Items {
		if e.InvolvedObject.Name == "1web" && (e.Reason != "FailedReflection" || e.Count != 1) {
			t.Errorf("%d times %s: %s", e.Count, e.Reason, e.Message)
		}
	}
}
