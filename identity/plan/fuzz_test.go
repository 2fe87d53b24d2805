// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/desired"
)

// What is fuzzed here is what the other cluster writes, as the API server hands it on.

// parsed is an object of the JSON that a peer sends; what the API server would not take is left out.
func parsed[T any](data []byte) (T, bool) {
	var out T
	err := json.Unmarshal(data, &out)
	return out, err == nil
}

func jsonOf(v any) []byte { return must(json.Marshal(v)) }

// challenge is a nonce as clusters make them.
var challenge = []byte(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, plan.NonceSize)))

// FuzzNonce: whoever may have this cluster sign something gets no signature but of a challenge.
func FuzzNonce(f *testing.F) {
	f.Add(challenge)
	f.Add([]byte("TLS 1.3, server CertificateVerify"))
	f.Fuzz(func(t *testing.T, nonce []byte) {
		root := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{api.LabelSignedNonce: "true"}},
			Data:       map[string][]byte{api.NonceField: nonce},
		}
		p := plan.Nonce(plan.NonceInput{Root: root, Tenant: true, Keys: plan.Keys{Own: known{}.private("milan")}})
		random, err := base64.StdEncoding.DecodeString(string(nonce))
		if p.Fill != nil && (err != nil || len(random) != plan.NonceSize) {
			t.Errorf("signed %q", nonce)
		}
	})
}

// FuzzTenant: a Tenant without the right signature of the challenge is given nothing, and no Tenant is given more
// than its own name.
func FuzzTenant(f *testing.F) {
	honest := authv1beta1.TenantSpec{
		ClusterID: "milan", PublicKey: must(plan.EncodePublicKey(key("milan").Public())),
		CSR: must(plan.NewRequest(key("milan"), plan.ControlPlaneSubject("milan"))), Signature: must(plan.Sign(key("milan"), challenge)),
	}
	f.Add(jsonOf(honest))
	other := honest
	other.CSR = must(plan.NewRequest(key("milan"), plan.Subject{User: "milan", Group: "system:masters"}))
	f.Add(jsonOf(other))
	other.AuthzPolicy, other.TenantCondition = authv1beta1.AuthzTolerateNoHandshake, authv1beta1.TenantDrained
	f.Add(jsonOf(other))
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, ok := parsed[authv1beta1.TenantSpec](data)
		if !ok {
			return
		}
		root := &authv1beta1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "t", Labels: map[string]string{api.LabelRemoteClusterID: spec.ClusterID}}, Spec: spec}
		p := plan.Tenant(plan.TenantInput{
			Root: root, Tenants: []authv1beta1.Tenant{*root}, Now: time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC),
			Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan", Labels: map[string]string{
				api.LabelTenantNamespace: "true", api.LabelRemoteClusterID: "milan",
			}}},
			Nonces:    []corev1.Secret{{Data: map[string][]byte{api.NonceField: challenge}}},
			APIServer: plan.APIServer{Address: "https://192.0.2.1:6443"},
		})
		if len(p.Objects) > 0 && spec.AuthzPolicy != authv1beta1.AuthzTolerateNoHandshake {
			public := must(plan.ParsePublicKey(spec.PublicKey))
			if err := plan.Verify(public, challenge, spec.Signature); err != nil {
				t.Errorf("granted without a proof: %v", names(p.Objects))
			}
		}
		for _, obj := range p.Objects {
			if b, binding := obj.(*rbacv1.ClusterRoleBinding); binding && b.Subjects[0].Name != "milan" {
				t.Errorf("bound %q", b.Subjects[0].Name)
			}
		}
	})
}

// FuzzSlice: what a consumer asks for is granted to the user of the slice and to nobody else.
func FuzzSlice(f *testing.F) {
	user := api.ResourceSliceUserName("big", "milan")
	f.Add(jsonOf(authv1beta1.ResourceSliceSpec{
		ConsumerClusterID: "milan", CSR: must(plan.NewRequest(key("milan"), plan.SliceSubject("big", "milan"))),
	}))
	f.Add([]byte(`{"class": "default", "consumerClusterID": "oslo", "resources": {"cpu": "-1", "": "1e9"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		spec, ok := parsed[authv1beta1.ResourceSliceSpec](data)
		if !ok {
			return
		}
		tenant := &authv1beta1.Tenant{Spec: authv1beta1.TenantSpec{ClusterID: "milan"}, Status: authv1beta1.TenantStatus{TenantNamespace: "liqo-tenant-milan"}}
		root := &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "big"}, Spec: spec}
		p := plan.Slice(plan.SliceInput{Granted: &plan.GrantedSlice{
			Root: root, Tenant: tenant, Offer: plan.Offer{DefaultClass: true}, APIServer: plan.APIServer{Address: "https://192.0.2.1:6443"},
			Now: time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC),
		}})
		for _, obj := range p.Objects {
			if q, quota := obj.(*offv1beta1.Quota); quota && q.Spec.User != user {
				t.Errorf("a quota for %s", q.Spec.User)
			}
		}
	})
}

// FuzzAnswer: whatever a provider answers becomes at most a kubeconfig with our own key and its own certificate, and
// a virtual node of its own.
func FuzzAnswer(f *testing.F) {
	held := must(base64.StdEncoding.DecodeString(known{}.certificate("milan", "milan", "liqo.io", 10, 30)))
	f.Add(jsonOf(authv1beta1.AuthParams{APIServer: "https://192.0.2.1:6443", SignedCRT: held}), []byte(`{"resources": {"cpu": "1"}}`))
	f.Add(jsonOf(authv1beta1.AuthParams{APIServer: "file:///etc", ProxyURL: "socks5://x", AWSConfig: &authv1beta1.AWSConfig{}}), []byte(`{"conditions": [{}]}`))
	private := must(plan.EncodePrivateKey(key("milan")))
	f.Fuzz(func(t *testing.T, credentials, status []byte) {
		params, ok := parsed[authv1beta1.AuthParams](credentials)
		if !ok {
			return
		}
		in := plan.IdentityInput{ClusterID: "milan", Keys: plan.Keys{Own: private}, Root: &authv1beta1.Identity{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "controlplane-rome"},
			Spec:       authv1beta1.IdentitySpec{ClusterID: "rome", Type: authv1beta1.IdentityControlPlane, AuthParams: &params},
		}}
		in.Renew = &authv1beta1.Renew{Status: authv1beta1.RenewStatus{AuthParams: &params}}
		if p := plan.Identity(in); len(p.Objects) > 0 && p.State == desired.Ready {
			if _, err := plan.ParseCertificate(params.SignedCRT); err != nil {
				t.Errorf("a kubeconfig without a certificate: %v", err)
			}
		}
		answer, ok := parsed[authv1beta1.ResourceSliceStatus](status)
		if !ok {
			return
		}
		answer.AuthParams = &params
		root := &authv1beta1.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "big", Annotations: map[string]string{api.AnnotationCreateVirtualNode: "true"}},
			Spec:       authv1beta1.ResourceSliceSpec{ProviderClusterID: "rome"}, Status: answer,
		}
		asked := &plan.AskedSlice{Root: root, ClusterID: "milan", NamespacePeer: "rome", Keys: plan.Keys{Own: private}, RemoteNamespace: "liqo-tenant-milan"}
		if first := plan.Slice(plan.SliceInput{Asked: asked}); first.Fill != nil {
			asked.Root = first.Fill.(*authv1beta1.ResourceSlice)
		}
		p := plan.Slice(plan.SliceInput{Asked: asked})
		if slices.ContainsFunc(p.Objects, func(o desired.Object) bool { return o.GetNamespace() != "liqo-tenant-rome" }) {
			t.Errorf("objects elsewhere: %v", names(p.Objects))
		}
	})
}
