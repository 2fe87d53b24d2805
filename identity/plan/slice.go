// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// SliceInput is the input for a ResourceSlice. Asked is set at the consumer, which requested it;
// Granted at the provider, which has a copy. Exactly one of them is set.
type SliceInput struct {
	Asked   *AskedSlice
	Granted *GrantedSlice
}

// Slice plans one ResourceSlice in the role this cluster has in it.
func Slice(in SliceInput) desired.Plan {
	if in.Granted != nil {
		return in.Granted.plan()
	}
	return in.Asked.plan()
}

// answerTypes lists the conditions by which a provider answers: who asks, and how much it gets.
var answerTypes = []authv1beta1.ResourceSliceConditionType{
	authv1beta1.ResourceSliceAuthentication, authv1beta1.ResourceSliceResources,
}

// answer returns the condition of a type, the zero value when the provider has not answered.
func answer(s *authv1beta1.ResourceSlice, t authv1beta1.ResourceSliceConditionType) authv1beta1.ResourceSliceCondition {
	for _, c := range s.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return authv1beta1.ResourceSliceCondition{}
}

// Outdated reports whether an answer is about an earlier request than the slice's spec. It compares
// the generation, which some providers leave 0, and of an accepted authentication the certificate.
func Outdated(s *authv1beta1.ResourceSlice, c authv1beta1.ResourceSliceCondition) bool {
	if c.ObservedGeneration != 0 && c.ObservedGeneration < s.Generation {
		return true
	}
	held := Held(s.Status.AuthParams)
	return c.Type == authv1beta1.ResourceSliceAuthentication && c.Status == authv1beta1.ResourceSliceAccepted &&
		len(held) > 0 && HeldFor(held, s.Spec.CSR) == nil
}

// accepted reports whether the provider has accepted that part of the slice.
func accepted(s *authv1beta1.ResourceSlice, t authv1beta1.ResourceSliceConditionType) bool {
	return answer(s, t).Status == authv1beta1.ResourceSliceAccepted
}

// Admitted returns the admitted Tenant among those of one namespace; nil if there is none.
func Admitted(tenants []authv1beta1.Tenant) *authv1beta1.Tenant {
	for i := range tenants {
		if tenants[i].Status.TenantNamespace != "" && tenants[i].DeletionTimestamp == nil {
			return &tenants[i]
		}
	}
	return nil
}
