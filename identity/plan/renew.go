// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// RenewInput is the input for the answer to a consumer's Renew.
type RenewInput struct {
	// Root is any Renew; only copies made by a consumer are answered.
	Root *authv1beta1.Renew
	// Tenants are those of Root's namespace.
	Tenants []authv1beta1.Tenant
}

// Renew hands the Tenant's current credentials to its consumer. Only the Tenant decides when they
// are renewed; the request in Root is not read. A copy is deleted with the Tenant, because its
// consumer may no longer delete it.
func Renew(in RenewInput) desired.Plan {
	root := in.Root
	if root.DeletionTimestamp != nil || !Replicated(root) ||
		root.Spec.IdentityType != string(authv1beta1.IdentityControlPlane) {
		return desired.Plan{}
	}
	if len(in.Tenants) == 0 {
		return desired.Plan{Actions: desired.Deletes(root)}
	}
	tenant := Admitted(in.Tenants)
	if tenant == nil || tenant.Status.AuthParams == nil {
		return desired.Wait(ReasonTenantNotFound,
			"no Tenant with credentials in this namespace; create one with 'liqoctl generate tenant' on the consumer")
	}
	if tenant.Spec.ClusterID != root.Spec.ConsumerClusterID {
		return desired.Block(ReasonInvalid, "this namespace belongs to %q, not %q; recreate the Identity on the "+
			"consumer", tenant.Spec.ClusterID, root.Spec.ConsumerClusterID)
	}
	return desired.Plan{
		Status: &authv1beta1.Renew{Status: authv1beta1.RenewStatus{AuthParams: tenant.Status.AuthParams.DeepCopy()}}}
}
