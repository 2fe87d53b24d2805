// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/reflection/translate"
)

// TestDerivedNamesAreLegal tries pods and service accounts with names of every legal length, and
// tokens at any path: the provider's API server takes what is made of them, and the pod finds each
// token where it looks for it.
func TestDerivedNamesAreLegal(t *testing.T) {
	t.Parallel()
	paths := []string{"token", "a/b", "a_b", "my token", "jeton-été", strings.Repeat("deep/", 60) + "token", strings.Repeat("deep_", 60) + "token"}
	secrets := map[string]string{}
	for length := 1; length <= validation.DNS1123SubdomainMaxLength; length++ {
		for _, name := range []string{
			strings.Repeat("a", length), strings.Repeat("a", length-1) + "b", strings.Repeat("a-.", 85)[:length-1] + "c",
		} {
			if len(validation.IsDNS1123Subdomain(name)) > 0 {
				continue
			}
			home := podWithTokens(name, paths)
			checkTokens(t, home, paths, secrets)
		}
	}
}

func podWithTokens(name string, paths []string) *corev1.Pod {
	home := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "u1"}}
	home.Spec.ServiceAccountName = name
	home.Spec.Containers = []corev1.Container{{Name: "c", Image: "image"}}
	projected := &corev1.ProjectedVolumeSource{}
	for _, path := range paths {
		token := &corev1.ServiceAccountTokenProjection{Path: path, Audience: path}
		projected.Sources = append(projected.Sources, corev1.VolumeProjection{ServiceAccountToken: token})
	}
	home.Spec.Volumes = []corev1.Volume{{Name: "tokens", VolumeSource: corev1.VolumeSource{Projected: projected}}}
	return home
}

func checkTokens(t *testing.T, home *corev1.Pod, paths []string, secrets map[string]string) {
	t.Helper()
	v := translate.View{Consumer: "rome", Provider: "milan", Node: "milan", Namespaces: map[string]string{"shop": "shop-rome"}}
	shadow := translate.Pod(home, nil, v)
	v.Tokens = map[string]translate.Token{}
	for _, source := range translate.TokenSources(home, v) {
		v.Tokens[source.Key] = translate.Token{Value: source.Audience}
	}
	secret := translate.Tokens(home, nil, v)
	errs := validation.IsDNS1123Subdomain(secret.Name)
	for _, value := range secret.Labels {
		errs = append(errs, validation.IsValidLabelValue(value)...)
	}
	for key := range secret.Data {
		errs = append(errs, validation.IsConfigMapKey(key)...)
	}
	if pod := translate.PodOfTokens(secret); pod != home.Name {
		errs = append(errs, "the Secret is one of pod "+pod)
	}
	if other, taken := secrets[secret.Name]; taken && other != home.Name {
		errs = append(errs, "pod "+other+" has the same Secret")
	}
	if secret.Name == home.Name+"-token" {
		errs = append(errs, "a Secret of the user may have the name")
	}
	secrets[secret.Name] = home.Name
	found := 0
	for _, source := range shadow.Spec.Pod.Volumes[0].Projected.Sources {
		if source.Secret == nil || source.Secret.Name != secret.Name {
			continue
		}
		for _, item := range source.Secret.Items {
			if string(secret.Data[item.Key]) != item.Path {
				errs = append(errs, fmt.Sprintf("at %.30s is the token of %.30s", item.Path, secret.Data[item.Key]))
			}
			found++
		}
	}
	if found != len(paths) {
		errs = append(errs, fmt.Sprintf("the pod reads %d tokens of %d", found, len(paths)))
	}
	if len(errs) > 0 {
		t.Errorf("pod %s: %s", home.Name, strings.Join(errs, "; "))
	}
}

// TestTokensOfAFormerName goes on with the Secret of a pod that was made when its name had no
// digits. A new pod of the same name reads its tokens elsewhere: the former Secret goes first.
func TestTokensOfAFormerName(t *testing.T) {
	t.Parallel()
	home := podWithTokens("web", []string{"token"})
	v := translate.View{Namespaces: map[string]string{"shop": "shop-rome"}, Tokens: map[string]translate.Token{"tokens.token": {Value: "new"}}}
	former := translate.Tokens(home, nil, v)
	former.Name = "web-token"
	if got := translate.Tokens(home, former, v); got == nil || got.Name != "web-token" || translate.PodOfTokens(got) != "web" {
		t.Errorf("tokens of a pod that runs: %v", got)
	}
	home.UID = "u2"
	if got := translate.Tokens(home, former, v); got != nil {
		t.Errorf("tokens of a new pod lie in the former Secret: %v", got)
	}
}

// TestTokensLieWhereTheShadowPodMountsThem asks for the name of a new Secret of tokens, also with
// what a cache keeps of the ShadowPod.
func TestTokensLieWhereTheShadowPodMountsThem(t *testing.T) {
	t.Parallel()
	home := podWithTokens("web", []string{"token"})
	home.Spec.Volumes = append(home.Spec.Volumes, corev1.Volume{Name: "own", VolumeSource: corev1.VolumeSource{
		Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: "web-token"}, // a user's
		}}}},
	}})
	v := translate.View{Consumer: "rome", Provider: "milan", Namespaces: map[string]string{"shop": "shop-rome"}}
	present := translate.Pod(home, nil, v)
	former := present.DeepCopy()
	former.Spec.Pod.Volumes[0].Projected.Sources[0].Secret.Name = "web-token"
	anew := home.DeepCopy()
	anew.UID = "u2"
	name := api.ServiceAccountTokenSecretName("web")
	for _, c := range []struct {
		home   *corev1.Pod
		shadow *offv1beta1.ShadowPod
		want   string
	}{{home, nil, name}, {home, present, name}, {home, former, "web-token"}, {anew, former, name}} {
		for _, shadow := range []*offv1beta1.ShadowPod{c.shadow, trimmed(c.shadow, translate.TrimShadowPod)} {
			if got := translate.TokenSecretName(c.home, shadow); got != c.want {
				t.Errorf("tokens of pod %s lie in %s, want %s", c.home.UID, got, c.want)
			}
		}
	}
	v.Tokens, v.TokenSecret = map[string]translate.Token{"tokens.token": {Value: "new"}}, "web-token"
	if got := translate.Tokens(home, nil, v); got.Name != "web-token" {
		t.Errorf("a new Secret is called %s", got.Name)
	}
}

// TestConfigMapNamesAreKeptApart: the copy of the root CA takes no name that another ConfigMap has
// at the provider.
func TestConfigMapNamesAreKeptApart(t *testing.T) {
	t.Parallel()
	remote := map[string]string{}
	for _, home := range []string{"kube-root-ca.crt", "kube-root-ca.crt.clust", "kube-root-ca.crt.clus", "settings"} {
		name := translate.ConfigMapName(home, "cluster-a")
		if other, taken := remote[name]; taken || translate.HomeConfigMapName(name, "cluster-a") != home {
			t.Errorf("%s is %s at the provider, which is %s%s", home, name, translate.HomeConfigMapName(name, "cluster-a"), other)
		}
		remote[name] = home
	}
}
