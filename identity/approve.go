// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/ctl"
)

// approver approves the signing requests that this controller made out of checked Tenants and
// ResourceSlices. Anybody may put our label on a request, so only those count whose creator,
// which the API server writes down, is this process's own user. Approving is an action on a
// subresource, not a desired object: hence no plan.
type approver struct{ client client.Client }

// Register adds the approver to the manager.
func (a approver) Register(mgr manager.Manager) error {
	a.client = mgr.GetClient()
	ours := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetLabels()[api.LabelRemoteTenantCSR] == "true" })
	return builder.ControllerManagedBy(mgr).Named("approve").
		For(&certificatesv1.CertificateSigningRequest{}, builder.WithPredicates(ours)).
		WithOptions(ctl.Options()).
		Complete(a)
}

// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;list;watch
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval,verbs=update
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,verbs=approve,resourceNames=kubernetes.io/kube-apiserver-client
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=selfsubjectreviews,verbs=create

// Reconcile approves one request unless it is decided already or made by somebody else.
func (a approver) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	var request certificatesv1.CertificateSigningRequest
	if err := a.client.Get(ctx, req.NamespacedName, &request); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if request.DeletionTimestamp != nil || len(request.Status.Conditions) > 0 {
		return reconcile.Result{}, nil
	}
	var self authenticationv1.SelfSubjectReview
	if err := a.client.Create(ctx, &self); err != nil {
		return reconcile.Result{}, fmt.Errorf("review own user: %w", err)
	}
	if request.Spec.Username != self.Status.UserInfo.Username {
		return reconcile.Result{}, nil
	}
	request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: "IdentityVerified", Message: "Liqo has checked who asks and for what",
	}}
	err := a.client.SubResource("approval").Update(ctx, &request)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("approve signing request %s: %w", request.Name, err)
	}
	log.FromContext(ctx).Info("approved a signing request", "request", request.Name)
	return reconcile.Result{}, nil
}
