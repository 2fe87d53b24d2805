// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/reflection/translate"
)

// TestTokensOfACutLife: home grants an hour where a day is asked for; 80 % of the hour pass before
// the next request, also when something else of the Secret has changed since.
func TestTokensOfACutLife(t *testing.T) {
	home := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"}}
	home.Spec.Volumes = []corev1.Volume{{Name: "api", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(86400))}}},
	}}}}
	made := time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)
	v := translate.View{Tokens: map[string]translate.Token{"api.token": {Value: "abc", Expires: made.Add(time.Hour), Seconds: 3600}}}
	tokens := translate.Tokens(home, nil, v)
	v.Tokens = nil
	for _, secret := range []*corev1.Secret{tokens, translate.Tokens(home, tokens, v)} {
		if got := translate.TokenRefresh(home, secret, translate.TokenSources(home, v)); !got.Equal(made.Add(48 * time.Minute)) {
			t.Errorf("made at %s, requested anew at %s", made, got)
		}
	}
}

// TestAttackSecretWithoutData: a provider empties the Secret of a pod that reads ClusterTrustBundles and no token.
//
// Outcome: the pod gets its files again, and the virtual kubelet goes on.
func TestAttackSecretWithoutData(t *testing.T) {
	home := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1"}}
	home.Spec.Volumes = []corev1.Volume{{Name: "ca", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Path: "none.pem", Name: new("none"), Optional: new(true)}}},
	}}}}
	v := translate.View{Trust: []certificatesv1.ClusterTrustBundle{}, APIServer: translate.APIServer{Unsupported: true}}
	secret := translate.Tokens(home, nil, v)
	if len(secret.Data) != 2 {
		t.Fatalf("made with %v", secret.Data)
	}
	secret.Data = nil
	if again := translate.Tokens(home, secret, v); len(again.Data) != 1 {
		t.Errorf("made again with %v", again.Data)
	}
}
