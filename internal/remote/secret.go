// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
)

// Labelled reports whether a Secret is labelled as the kubeconfig of this cluster's control plane
// at a provider. Anybody who may write Secrets can set the labels: check IsControlPlane before the
// Secret is used.
func Labelled(secret client.Object) bool {
	l := secret.GetLabels()
	return l[api.LabelIdentityType] == string(authv1beta1.IdentityControlPlane) && l[api.LabelRemoteClusterID] != ""
}

// IsControlPlane reports whether a Secret holds such a kubeconfig: it must be labelled, and in the
// tenant namespace of the peer it names. Namespaces that peers or users write to are no tenant
// namespaces.
func IsControlPlane(ctx context.Context, r client.Reader, secret client.Object) (bool, error) {
	if !Labelled(secret) {
		return false, nil
	}
	var namespace corev1.Namespace
	if err := r.Get(ctx, client.ObjectKey{Name: secret.GetNamespace()}, &namespace); err != nil {
		return false, fmt.Errorf("get namespace %s: %w", secret.GetNamespace(), err)
	}
	return namespace.Labels[api.LabelTenantNamespace] == api.True &&
		namespace.Labels[api.LabelRemoteClusterID] == secret.GetLabels()[api.LabelRemoteClusterID], nil
}

// SecretsIn maps a Namespace, whose labels may have changed, to its control-plane Secrets.
func SecretsIn(ctx context.Context, r client.Reader, namespace client.Object) []reconcile.Request {
	return ctl.Roots(ctx, r, &corev1.SecretList{}, client.InNamespace(namespace.GetName()),
		client.MatchingLabels{api.LabelIdentityType: string(authv1beta1.IdentityControlPlane)})
}
