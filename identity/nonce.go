// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/ctl"
)

// nonces fills nonce Secrets, on both sides of the handshake.
func (o Options) nonces() ctl.Registrar {
	return ctl.Controller[*corev1.Secret, plan.NonceInput]{
		Name: "nonce",
		Watches: []ctl.Watch{
			{Kind: &corev1.Namespace{}, Map: inside(&corev1.SecretList{}, client.HasLabels{api.LabelNonce})},
			{Kind: &corev1.Secret{}, Map: o.keyed(&corev1.SecretList{}, client.HasLabels{api.LabelSignedNonce})},
			{Kind: &authv1beta1.Tenant{}, Map: challenges},
		},
		Gather: o.gatherNonce,
		Plan:   plan.Nonce,
	}
}

// challenges maps a Tenant to the nonces of its namespace.
func challenges(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
	inNamespace := client.InNamespace(obj.GetNamespace())
	return ctl.Roots(ctx, r, &corev1.SecretList{}, inNamespace, client.HasLabels{api.LabelNonce})
}

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=tenants,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

func (o Options) gatherNonce(ctx context.Context, r ctl.Reader, root *corev1.Secret) (plan.NonceInput, error) {
	in := plan.NonceInput{Root: root.DeepCopy()}
	_, challenge := root.Labels[api.LabelNonce]
	_, answer := root.Labels[api.LabelSignedNonce]
	if !challenge && !answer {
		return in, nil
	}
	namespace, err := namespaceOf(ctx, r, root)
	if err != nil {
		return in, err
	}
	in.Tenant = namespace.Labels[api.LabelTenantNamespace] == "true"
	// A late cache must not replace a nonce that the consumer may have read already.
	var live corev1.Secret
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(root), &live); err != nil {
		return in, fmt.Errorf("get secret %s: %w", client.ObjectKeyFromObject(root), err)
	}
	in.Root.Data = live.Data
	if answer {
		in.Keys, err = o.keys(ctx, r, root.Namespace)
		return in, err
	}
	var tenants authv1beta1.TenantList
	if err := r.List(ctx, &tenants, client.InNamespace(root.Namespace)); err != nil {
		return in, fmt.Errorf("list tenants in %s: %w", root.Namespace, err)
	}
	in.Tenants = tenants.Items
	in.Random = make([]byte, plan.NonceSize)
	_, err = rand.Read(in.Random)
	return in, err
}

// namespacePeer returns the peer of an object's namespace; empty if it is not a tenant namespace.
func namespacePeer(ctx context.Context, r ctl.Reader, obj client.Object) (string, error) {
	namespace, err := namespaceOf(ctx, r, obj)
	if err != nil || namespace.Labels[api.LabelTenantNamespace] != api.True {
		return "", err
	}
	return namespace.Labels[api.LabelRemoteClusterID], nil
}

// namespaceOf reads an object's namespace.
func namespaceOf(ctx context.Context, r ctl.Reader, obj client.Object) (*corev1.Namespace, error) {
	var namespace corev1.Namespace
	if err := r.Get(ctx, client.ObjectKey{Name: obj.GetNamespace()}, &namespace); err != nil {
		return nil, fmt.Errorf("get namespace %s: %w", obj.GetNamespace(), err)
	}
	return &namespace, nil
}
