// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/ctl"
)

// identities reconciles Identities: it makes kubeconfig Secrets of the credentials that providers
// issue.
func (o Options) identities() ctl.Registrar {
	return ctl.Controller[*authv1beta1.Identity, plan.IdentityInput]{
		Name: "identity",
		Owns: []client.Object{&corev1.Secret{}, &authv1beta1.Renew{}},
		Watches: []ctl.Watch{
			{Kind: &corev1.Namespace{}, Map: inside(&authv1beta1.IdentityList{})},
			{Kind: &corev1.Secret{}, Map: o.keyed(&authv1beta1.IdentityList{})},
			{Kind: &netv1beta1.Configuration{}, Map: identitiesOfPeer},
			{Kind: &authv1beta1.Identity{}, Map: ofControlPlane},
			{Kind: &corev1.Secret{}, Map: ofControlPlane},
		},
		Gather: o.gatherIdentity,
		Plan:   plan.Identity,
	}
}

// +kubebuilder:rbac:groups=authentication.liqo.io,resources=identities,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=identities/status,verbs=patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=identities/finalizers,verbs=update
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=renews,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations,verbs=get;list;watch

func (o Options) gatherIdentity(ctx context.Context, r ctl.Reader,
	root *authv1beta1.Identity) (plan.IdentityInput, error) {
	in := plan.IdentityInput{Root: root, ClusterID: o.ClusterID, Now: time.Now()}
	var err error
	if in.Keys, err = o.keys(ctx, r, root.Namespace); err != nil {
		return in, err
	}
	if in.NamespacePeer, err = namespacePeer(ctx, r, root); err != nil {
		return in, err
	}
	if in.Renew, err = ctl.Optional(ctx, r, client.ObjectKeyFromObject(root), &authv1beta1.Renew{}); err != nil {
		return in, err
	}
	if in.ControlPlane, err = identityNamed(ctx, r, root.Namespace,
		api.ControlPlaneIdentityName(root.Spec.ClusterID)); err != nil {
		return in, err
	}
	if in.Kubeconfig, err = kubeconfigOf(ctx, r, root.Namespace, root.Name); err != nil {
		return in, err
	}
	if in.ControlPlaneSecrets, err = controlPlaneSecrets(ctx, r, root.Namespace); err != nil {
		return in, err
	}
	var seen netv1beta1.ConfigurationList
	if err := r.List(ctx, &seen, client.MatchingLabels{api.LabelRemoteClusterID: root.Spec.ClusterID}); err != nil {
		return in, fmt.Errorf("list configurations: %w", err)
	}
	in.Configurations = seen.Items
	return in, nil
}

// identityNamed reads an Identity; it returns nil if there is none.
func identityNamed(ctx context.Context, r client.Reader, namespace, name string) (*authv1beta1.Identity, error) {
	return ctl.Optional(ctx, r, client.ObjectKey{Namespace: namespace, Name: name}, &authv1beta1.Identity{})
}

// kubeconfigOf reads the Secret with the kubeconfig of an Identity; it returns nil if there is
// none.
func kubeconfigOf(ctx context.Context, r client.Reader, namespace, identity string) (*corev1.Secret, error) {
	name := api.KubeconfigSecretName(identity)
	return ctl.Optional(ctx, r, client.ObjectKey{Namespace: namespace, Name: name}, &corev1.Secret{})
}

// identitiesOfPeer maps a Configuration to the Identities for the same provider.
func identitiesOfPeer(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
	return ctl.Roots(ctx, r, &authv1beta1.IdentityList{},
		client.MatchingLabels{api.LabelRemoteClusterID: obj.GetLabels()[api.LabelRemoteClusterID]})
}

// ofControlPlane maps the control plane's Identity and kubeconfig to the Identities of slices in
// the same namespace, which use the same endpoint.
func ofControlPlane(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
	control := obj.GetLabels()[api.LabelIdentityType] == string(authv1beta1.IdentityControlPlane)
	if i, ok := obj.(*authv1beta1.Identity); ok {
		control = i.Spec.Type == authv1beta1.IdentityControlPlane
	}
	if !control {
		return nil
	}
	return ctl.Roots(ctx, r, &authv1beta1.IdentityList{}, client.InNamespace(obj.GetNamespace()))
}

// renews reconciles Renews: it hands fresh control-plane credentials to consumers.
func (o Options) renews() ctl.Registrar {
	return ctl.Controller[*authv1beta1.Renew, plan.RenewInput]{
		Name:    "renew",
		Watches: []ctl.Watch{{Kind: &authv1beta1.Tenant{}, Map: ctl.SameNamespace(&authv1beta1.RenewList{})}},
		Gather: func(ctx context.Context, r ctl.Reader, root *authv1beta1.Renew) (plan.RenewInput, error) {
			tenants, err := tenantsOf(ctx, r, root)
			return plan.RenewInput{Root: root, Tenants: tenants}, err
		},
		Plan: plan.Renew,
	}
}

// +kubebuilder:rbac:groups=authentication.liqo.io,resources=renews/status,verbs=patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=tenants,verbs=get;list;watch

// tenantOf reads the admitted Tenant of an object's namespace; it returns nil if there is none.
func tenantOf(ctx context.Context, r ctl.Reader, obj client.Object) (*authv1beta1.Tenant, error) {
	tenants, err := tenantsOf(ctx, r, obj)
	return plan.Admitted(tenants), err
}

func tenantsOf(ctx context.Context, r ctl.Reader, obj client.Object) ([]authv1beta1.Tenant, error) {
	var tenants authv1beta1.TenantList
	if err := r.List(ctx, &tenants, client.InNamespace(obj.GetNamespace())); err != nil {
		return nil, fmt.Errorf("list tenants in %s: %w", obj.GetNamespace(), err)
	}
	return tenants.Items, nil
}
