// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/desired"
)

// ApproveInput holds an undecided signing request and the user name of this process.
type ApproveInput struct {
	Root *certificatesv1.CertificateSigningRequest
	Self string
}

// Undecided reports whether a signing request with our label waits to be approved.
func Undecided(request *certificatesv1.CertificateSigningRequest) bool {
	return request.Labels[api.LabelRemoteTenantCSR] == api.True && len(request.Status.Conditions) == 0
}

// Approve approves a request that this process created. The label alone proves nothing, because
// anybody may set it; the API server records the creator.
func Approve(in ApproveInput) desired.Plan {
	if in.Root.Spec.Username != in.Self {
		return desired.Plan{}
	}
	approved := in.Root.DeepCopy()
	approved.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue,
		Reason: "IdentityVerified", Message: "Liqo has checked who asks and for what",
	}}
	return desired.Plan{Actions: []desired.Action{{Verb: desired.Update, Subresource: "approval", Object: approved}}}
}
