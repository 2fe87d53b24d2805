// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// TestTokensAreReadable: who can read a token's file on a node of home can read it at the provider, where it is a file
// of root, and the mode is no wider than that needs. A kubelet adds the group of fsGroup and 0440 to it.
func TestTokensAreReadable(t *testing.T) {
	user := func(user, group int64) *corev1.SecurityContext {
		return &corev1.SecurityContext{RunAsUser: new(user), RunAsGroup: new(group)}
	}
	for name, test := range map[string]struct {
		pod        *corev1.PodSecurityContext
		containers []*corev1.SecurityContext
		want       *int32
	}{
		"nothing said":            {nil, []*corev1.SecurityContext{nil}, nil},
		"one user":                {&corev1.PodSecurityContext{RunAsUser: new(int64(1000))}, []*corev1.SecurityContext{nil, nil}, new(int32(0o444))},
		"root's group":            {nil, []*corev1.SecurityContext{user(1000, 0), user(1000, 0)}, new(int32(0o440))},
		"one of root's group":     {nil, []*corev1.SecurityContext{user(1000, 0), user(1000, 7)}, new(int32(0o444))},
		"root":                    {nil, []*corev1.SecurityContext{user(0, 7)}, new(int32(0o600))},
		"two users":               {nil, []*corev1.SecurityContext{user(1000, 0), user(0, 0)}, nil},
		"the user of one":         {nil, []*corev1.SecurityContext{user(1000, 0), nil}, nil},
		"a group":                 {&corev1.PodSecurityContext{FSGroup: new(int64(2000))}, []*corev1.SecurityContext{nil}, new(int32(0o600))},
		"a group and two users":   {&corev1.PodSecurityContext{FSGroup: new(int64(2000))}, []*corev1.SecurityContext{user(1, 1), user(2, 2)}, new(int32(0o600))},
		"one user, not the pod's": {&corev1.PodSecurityContext{RunAsUser: new(int64(5))}, []*corev1.SecurityContext{user(6, 6)}, new(int32(0o444))},
	} {
		home := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u"}}
		home.Spec.SecurityContext = test.pod
		for _, c := range test.containers {
			home.Spec.Containers = append(home.Spec.Containers, corev1.Container{Name: "c", SecurityContext: c})
		}
		home.Spec.Volumes = []corev1.Volume{{Name: "api", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			DefaultMode: new(int32(0o400)),
			Sources:     []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
		}}}}
		remote := translate.Pod(home, nil, translate.View{Namespaces: map[string]string{"shop": "shop-rome"}})
		volume := remote.Spec.Pod.Volumes[0].Projected
		if diff := cmp.Diff(test.want, volume.Sources[0].Secret.Items[0].Mode); diff != "" || *volume.DefaultMode != 0o400 {
			t.Errorf("%s (-want +got): %s", name, diff)
		}
	}
}
