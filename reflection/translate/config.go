// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/liqo-go/liqo/api"
)

// rootCA is the ConfigMap by which Kubernetes publishes the CA of a cluster in each namespace. The
// provider has its own of that name, so the reflected one gets a suffix.
const rootCA = "kube-root-ca.crt"

// ConfigMapName returns the name of a ConfigMap at the provider. The root CA gets a name with the
// beginning of the consumer's ID, without a dash at its end. A home ConfigMap that already has that
// name gets another one: in a namespace that is offloaded twice, it may be the root CA of another
// consumer whose ID begins likewise.
func ConfigMapName(home, consumer string) string {
	copied := strings.TrimRight(api.RootCAConfigMapName(consumer), "-")
	switch home {
	case rootCA:
		return copied
	case copied:
		return copied + "-" + api.Digits(copied)
	}
	return home
}

// HomeConfigMapName reverses ConfigMapName.
func HomeConfigMapName(remote, consumer string) string {
	copied := ConfigMapName(rootCA, consumer)
	switch remote {
	case copied:
		return rootCA
	case ConfigMapName(copied, consumer):
		return copied
	}
	return remote
}

// ConfigMap pushes a ConfigMap. An immutable ConfigMap that changed (it was recreated in the
// consumer) is deleted first.
func ConfigMap(home, remote *corev1.ConfigMap, v View) *corev1.ConfigMap {
	if !reflects(home.Annotations, v.AllowList) {
		return nil
	}
	out := copyOf(remote)
	out.ObjectMeta = v.metadata(home.ObjectMeta, out.ObjectMeta, ConfigMapName(home.Name, v.Consumer))
	out.Data, out.BinaryData, out.Immutable = home.Data, home.BinaryData, home.Immutable
	if remote != nil && is(remote.Immutable) && !sameConfig(remote, out) {
		return nil
	}
	return out
}

func sameConfig(a, b *corev1.ConfigMap) bool {
	return maps.Equal(a.Data, b.Data) && equality.Semantic.DeepEqual(a.BinaryData, b.BinaryData) &&
		is(a.Immutable) == is(b.Immutable)
}

// Secret pushes a Secret. The provider has no such service accounts, so their tokens lose their
// type. An immutable Secret that changed, or one of another type, is deleted first.
func Secret(home, remote *corev1.Secret, v View) *corev1.Secret {
	if !reflects(home.Annotations, v.AllowList) {
		return nil
	}
	out := copyOf(remote)
	out.ObjectMeta = v.metadata(home.ObjectMeta, out.ObjectMeta, home.Name)
	out.Type, out.Data, out.Immutable = home.Type, home.Data, home.Immutable
	if home.Type == corev1.SecretTypeServiceAccountToken {
		out.Type = corev1.SecretTypeOpaque
		maps.DeleteFunc(out.Annotations, func(key, _ string) bool {
			return strings.HasPrefix(key, "kubernetes.io/service-account.")
		})
	}
	if remote != nil && !changeable(remote, out) {
		return nil
	}
	return out
}

func changeable(remote, want *corev1.Secret) bool {
	if remote.Type != want.Type {
		return false
	}
	same := equality.Semantic.DeepEqual(remote.Data, want.Data) && is(remote.Immutable) == is(want.Immutable)
	return same || !is(remote.Immutable)
}

// is returns the value of an optional switch; nil = off.
func is(b *bool) bool { return b != nil && *b }
