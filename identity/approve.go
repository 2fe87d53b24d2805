// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/ctl"
)

// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=get;list;watch
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval,verbs=update
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,verbs=approve,resourceNames=kubernetes.io/kube-apiserver-client
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=selfsubjectreviews,verbs=create

// approve approves the signing requests that this process created for checked Tenants and
// ResourceSlices.
func approve() ctl.Registrar {
	return ctl.Controller[*certificatesv1.CertificateSigningRequest, plan.ApproveInput]{
		Name: "approve", Quiet: true, Only: plan.Undecided,
		Gather: func(ctx context.Context, r ctl.Reader,
			root *certificatesv1.CertificateSigningRequest) (plan.ApproveInput, error) {
			self, err := r.Self(ctx)
			return plan.ApproveInput{Root: root, Self: self}, err
		},
		Plan: plan.Approve,
	}
}
