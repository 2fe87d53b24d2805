// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/ctl"
)

// identities turns the credentials a provider gave into kubeconfig Secrets.
func (o Options) identities() ctl.Registrar {
	return ctl.Controller[*authv1beta1.Identity, plan.IdentityInput]{
		Name:    "identity",
		Owns:    []client.Object{&corev1.Secret{}, &authv1beta1.Renew{}},
		Watches: []ctl.Watch{{Kind: &corev1.Secret{}, Map: o.keyed(&authv1beta1.IdentityList{})}},
		Gather:  o.gatherIdentity,
		Plan:    plan.Identity,
	}
}

// +kubebuilder:rbac:groups=authentication.liqo.io,resources=identities,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=identities/status,verbs=patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=identities/finalizers,verbs=update
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=renews,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;patch;delete

func (o Options) gatherIdentity(ctx context.Context, r ctl.Reader, root *authv1beta1.Identity) (plan.IdentityInput, error) {
	in := plan.IdentityInput{Root: root, ClusterID: o.ClusterID}
	var err error
	if in.PrivateKey, err = o.privateKey(ctx, r); err != nil {
		return in, err
	}
	in.Renew, err = found(ctx, r, client.ObjectKeyFromObject(root), &authv1beta1.Renew{})
	return in, err
}

// renews hands fresh control-plane credentials to consumers.
func (o Options) renews() ctl.Registrar {
	return ctl.Controller[*authv1beta1.Renew, plan.RenewInput]{
		Name:    "renew",
		Watches: []ctl.Watch{{Kind: &authv1beta1.Tenant{}, Map: ctl.SameNamespace(&authv1beta1.RenewList{})}},
		Gather: func(ctx context.Context, r ctl.Reader, root *authv1beta1.Renew) (plan.RenewInput, error) {
			tenant, err := tenantOf(ctx, r, root)
			return plan.RenewInput{Root: root, Tenant: tenant}, err
		},
		Plan: plan.Renew,
	}
}

// +kubebuilder:rbac:groups=authentication.liqo.io,resources=renews/status,verbs=patch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=tenants,verbs=get;list;watch

// tenantOf reads the admitted Tenant of an object's namespace, nil for none.
func tenantOf(ctx context.Context, r ctl.Reader, obj client.Object) (*authv1beta1.Tenant, error) {
	var tenants authv1beta1.TenantList
	if err := r.List(ctx, &tenants, client.InNamespace(obj.GetNamespace())); err != nil {
		return nil, fmt.Errorf("list tenants in %s: %w", obj.GetNamespace(), err)
	}
	return plan.Admitted(tenants.Items), nil
}
