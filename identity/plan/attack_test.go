// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"encoding/base64"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/ctl"
)

// copied is a consumer's slice at rome, as it is before the first answer.
func copied(consumer, name string) *authv1beta1.ResourceSlice {
	return &authv1beta1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + consumer, Name: name, Labels: map[string]string{api.LabelReplicated: "true"}},
		Spec: authv1beta1.ResourceSliceSpec{
			ConsumerClusterID: consumer, CSR: must(plan.NewRequest(key(consumer), plan.SliceSubject(name, consumer))),
		},
	}
}

// tenantOf is a consumer's Tenant at rome that answers the challenge.
func tenantOf(consumer string) *authv1beta1.Tenant {
	return &authv1beta1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-" + consumer, Name: consumer, Labels: map[string]string{api.LabelRemoteClusterID: consumer}},
		Spec: authv1beta1.TenantSpec{
			ClusterID: consumer, PublicKey: must(plan.EncodePublicKey(key(consumer).Public())),
			CSR: must(plan.NewRequest(key(consumer), plan.ControlPlaneSubject(consumer))), Signature: must(plan.Sign(key(consumer), challenge)),
		},
	}
}

func admitted(consumer string) *authv1beta1.Tenant {
	t := tenantOf(consumer)
	t.Status.TenantNamespace = t.Namespace
	return t
}

var atRome = plan.APIServer{Address: "https://192.0.2.1:6443"}

// answered is what rome decides about a slice of milan's, beside those who have a user name already.
func answered(root *authv1beta1.ResourceSlice, users plan.Users) ctl.Plan {
	return plan.Slice(plan.SliceInput{Granted: &plan.GrantedSlice{
		Root: root, Tenant: admitted("milan"), Users: users, Offer: plan.Offer{DefaultClass: true}, APIServer: atRome, Now: now,
	}})
}

// served is a copied slice that has its credentials.
func served(consumer, name string) authv1beta1.ResourceSlice {
	s := copied(consumer, name)
	s.Status.AuthParams = &authv1beta1.AuthParams{APIServer: atRome.Address}
	return *s
}

// TestAttackUserOfAnother: a consumer names a slice such that the user of the slice is the user of somebody
// else at the provider: of another consumer's control plane or slice, of a peering user, or of a person whom
// the administrator gave rights.
//
// Outcome: the slice is denied without a certificate and without a Quota, and its condition names who has
// the user name. A slice that has credentials already keeps them.
func TestAttackUserOfAnother(t *testing.T) {
	user := api.ResourceSliceUserName("big", "milan")
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}}
	// Of another consumer's slices only one whose ID has the same hash has the user: milan stands for it.
	for name, users := range map[string]plan.Users{
		"Tenant liqo-tenant-" + user + "/" + user: {Tenants: []authv1beta1.Tenant{*tenantOf(user)}},
		`cluster "` + user + `"`:                  {ClusterIDs: []string{"rome", user}},
		"ResourceSlice liqo-tenant-milan/big":     {Slices: []authv1beta1.ResourceSlice{served("milan", "big")}},
		"RoleBinding prod/admin": {RoleBindings: []rbacv1.RoleBinding{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "admin"}, Subjects: subjects,
		}}},
		"ClusterRoleBinding admin": {ClusterRoleBindings: []rbacv1.ClusterRoleBinding{{
			ObjectMeta: metav1.ObjectMeta{Name: "admin"}, Subjects: subjects,
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			refusesUser(t, answered(copied("milan", "big"), users), name)
			old := served("milan", "big")
			if p := answered(&old, users); p.Reason == plan.ReasonUserTaken {
				t.Errorf("a slice that has credentials is refused: %s", p.Message)
			}
		})
	}
	t.Run("peering user", func(t *testing.T) {
		refusesUser(t, answered(copied("milan", "liqo-peer-user-rome"), plan.Users{}), "a peering user")
	})
	t.Run("nobody", func(t *testing.T) {
		others := plan.Users{
			ClusterIDs: []string{"rome", "milan", "turin"}, Tenants: []authv1beta1.Tenant{*tenantOf("milan"), *tenantOf("turin")},
			Slices: []authv1beta1.ResourceSlice{*copied("milan", "big"), served("milan", "small"), served("turin", "big")},
			RoleBindings: []rbacv1.RoleBinding{{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{api.LabelManaged: "true"}}, Subjects: subjects,
			}},
		}
		if p := answered(copied("milan", "big"), others); p.Reason != plan.ReasonCertificatePending {
			t.Errorf("an honest slice is %s: %s", p.Reason, p.Message)
		}
	})
}

func refusesUser(t *testing.T, p ctl.Plan, holder string) {
	t.Helper()
	if p.State != ctl.Blocked || p.Reason != plan.ReasonUserTaken || len(p.Objects) > 0 || p.After == 0 {
		t.Errorf("the plan is %v %s with objects %v", p.State, p.Reason, names(p.Objects))
	}
	status := p.Status.(*authv1beta1.ResourceSlice).Status
	if status.AuthParams != nil {
		t.Error("the slice has credentials")
	}
	for _, c := range status.Conditions {
		if c.Status != authv1beta1.ResourceSliceDenied || !strings.Contains(c.Message, holder) {
			t.Errorf("condition %s is %s: %s", c.Type, c.Status, c.Message)
		}
	}
	if len(status.Conditions) != 2 {
		t.Errorf("%d conditions", len(status.Conditions))
	}
}

// TestAttackClusterNamedLikeASlice: a cluster that wants to be a consumer has the user of somebody else's
// slice as its ID, or that of a peering user. It would get the pods and the Quota of that slice.
//
// Outcome: its Tenant is blocked without a certificate, with and without a handshake, and the condition names
// the slice. A Tenant that has its certificate keeps it.
func TestAttackClusterNamedLikeASlice(t *testing.T) {
	taken := api.ResourceSliceUserName("big", "milan")
	for id, holder := range map[string]string{taken: "ResourceSlice liqo-tenant-milan/big", "liqo-peer-user-milan": "a peering user"} {
		for _, policy := range []authv1beta1.AuthzPolicy{authv1beta1.AuthzKeysExchange, authv1beta1.AuthzTolerateNoHandshake} {
			root := tenantOf(id)
			root.Spec.AuthzPolicy = policy
			in := plan.TenantInput{
				Root: root, AllSlices: []authv1beta1.ResourceSlice{served("milan", "big")}, APIServer: atRome, Now: now,
				Nonces: []corev1.Secret{{Data: map[string][]byte{api.NonceField: challenge}}},
				Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: root.Namespace, Labels: map[string]string{
					api.LabelTenantNamespace: "true", api.LabelRemoteClusterID: id,
				}}},
			}
			p := plan.Tenant(in)
			if p.State != ctl.Blocked || p.Reason != plan.ReasonUserTaken || len(p.Objects) > 0 || p.After == 0 || !strings.Contains(p.Message, holder) {
				t.Errorf("%s, %s: %s %s, with objects %v", id, policy, p.Reason, p.Message, names(p.Objects))
			}
			root.Status.TenantNamespace = root.Namespace
			root.Status.AuthParams = &authv1beta1.AuthParams{SignedCRT: certified(t, id)}
			if p := plan.Tenant(in); p.State != ctl.Ready {
				t.Errorf("%s, %s: an admitted Tenant is %s: %s", id, policy, p.Reason, p.Message)
			}
		}
	}
}

// certified is the certificate of a consumer's control plane.
func certified(t *testing.T, consumer string) []byte {
	t.Helper()
	return decoded(t, known{}.certificate(consumer, consumer, api.ControlPlaneOrganization, 10, 30))
}

func decoded(t *testing.T, text string) []byte {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
