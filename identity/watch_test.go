// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
)

// TestNamespaceIsLabelledLater: a nonce is made when its namespace becomes a tenant namespace, and an
// Identity is refused when its tenant namespace is given to another peer.
func TestNamespaceIsLabelledLater(t *testing.T) {
	t.Parallel()
	rome := startCluster(t, "rome")
	plain := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "plain"}}
	rome.create(t, plain, secret("plain", api.NonceSecret, api.LabelNonce, nil))
	rome.create(t, tenantNamespace(atRome, "milan"), secret(atRome, api.NonceSecret, api.LabelNonce, nil))
	rome.field(t, atRome, api.NonceSecret, api.NonceField) // the only worker has seen the one before, too
	label := func(namespace *corev1.Namespace, peer string) {
		rome.until(t, "the namespace is labelled", namespace, func() bool {
			namespace.Labels = tenantNamespace(namespace.Name, peer).Labels
			return rome.Update(t.Context(), namespace) == nil
		})
	}
	label(plain, "paris")
	rome.field(t, "plain", api.NonceSecret, api.NonceField)

	identity := &authv1beta1.Identity{
		ObjectMeta: metav1.ObjectMeta{Namespace: "plain", Name: "paris", Labels: peerLabel("paris")},
		Spec:       authv1beta1.IdentitySpec{ClusterID: "paris", Type: authv1beta1.IdentityControlPlane},
	}
	rome.create(t, identity)
	reason := func(want string) func() bool {
		return func() bool {
			c := meta.FindStatusCondition(identity.Status.Conditions, "Ready")
			return c != nil && c.Reason == want
		}
	}
	rome.until(t, "the Identity waits for credentials", identity, reason(plan.ReasonAuthParamsFailed))
	label(plain, "turin")
	rome.until(t, "the Identity is in a wrong namespace", identity, reason(plan.ReasonWrongNamespace))
}
