// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/liqo-go/liqo/api"
)

// trustIsThatOfHome: a pod reads the ClusterTrustBundles of home, also when they change and without a token.
func trustIsThatOfHome(t *testing.T, w *world) {
	defer w.reflect()()
	p := pod("trusting")
	p.Spec.Volumes[0].Projected.Sources = []corev1.VolumeProjection{
		{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Path: "ca.pem", Name: new("ours")}},
		{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Path: "more.pem", Name: new("more")}},
	}
	w.create(w.home, p)
	key := func(n string) string { return "_api." + n + ".pem" }
	var secret corev1.Secret
	has := func(name, content string) func() error {
		return func() error { return equal(content, string(secret.Data[key(name)])) }
	}
	name := api.ServiceAccountTokenSecretName(p.Name)
	w.exists(w.remote, &secret, remoteNS, name)
	if _, ok := secret.Data[key("ca")]; ok {
		t.Error("there is a file of a bundle that does not exist")
	}
	first, second := certificate(t, "first"), certificate(t, "second")
	ours := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: "ours"}, Spec: certificatesv1.ClusterTrustBundleSpec{TrustBundle: first}}
	w.create(w.home, ours)
	w.exists(w.remote, &secret, remoteNS, name, has("ca", first))
	ours.Spec.TrustBundle = second
	w.must("update bundle", w.home.Update(t.Context(), ours))
	w.exists(w.remote, &secret, remoteNS, name, has("ca", second), has("more", ""))
	delete(secret.Data, key("ca"))
	w.must("drift", w.remote.Update(t.Context(), &secret))
	w.exists(w.remote, &secret, remoteNS, name, has("ca", second))
	w.must("delete bundle", w.home.Delete(t.Context(), ours))
	w.exists(w.remote, &secret, remoteNS, name, has("ca", ""))
}

// certificate makes the certificate of an authority, in PEM.
func certificate(t *testing.T, name string) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	authority, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw}))
}
