// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/api/scheme"
	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/patience"
)

// TestAttackDrainedConsumer: a consumer whose Tenant is drained, or deleted, goes on with its certificate, which
// nobody can revoke, and with a watch that is to last for a day.
//
// Outcome: within seconds every request of it is forbidden and what it copied is deleted. The API server does not
// end the open watch: it reports the deletions, and what is made in that namespace later.
func TestAttackDrainedConsumer(t *testing.T) {
	t.Parallel()
	rome := startCluster(t, "rome")
	go certify(t.Context(), t, rome, rome.server.Sign)
	tenant, key := admittedTenant(t, rome)
	milan := asConsumer(tenant, key)

	for _, way := range []string{"drained", "deleted"} {
		slice := sliceOf("big-" + way)
		until(t, "the consumer has its rights", func(ctx context.Context) (bool, error) {
			err := milan.Create(ctx, slice)
			return err == nil, ignoreForbidden(err)
		})
		events := watchSlices(t, milan)
		started := time.Now()
		if way == "deleted" {
			rome.delete(t, tenant)
		} else {
			patch := client.MergeFrom(tenant.DeepCopy())
			tenant.Spec.TenantCondition = authv1beta1.TenantDrained
			if err := rome.Patch(t.Context(), tenant, patch); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "the consumer is refused", func(ctx context.Context) (bool, error) {
			err := milan.List(ctx, &authv1beta1.ResourceSliceList{}, client.InNamespace(atRome))
			return apierrors.IsForbidden(err), ignoreForbidden(err)
		})
		rome.gone(t, slice)
		t.Logf("%s after %s", way, time.Since(started))
		for name, err := range map[string]error{
			"create": milan.Create(t.Context(), sliceOf("again")), "delete": milan.Delete(t.Context(), sliceOf("again")),
			"get": milan.Get(t.Context(), client.ObjectKeyFromObject(slice), slice),
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: the consumer may still %s: %v", way, name, err)
			}
		}
		if _, err := milan.Watch(t.Context(), &authv1beta1.ResourceSliceList{}, client.InNamespace(atRome)); !apierrors.IsForbidden(err) {
			t.Errorf("%s: the consumer may open a watch: %v", way, err)
		}
		awaitEvent(t, events, watch.Deleted, slice.Name)
		later := sliceOf("later-" + way)
		rome.create(t, later)
		awaitEvent(t, events, watch.Added, later.Name) // docs/peer.md says so: correct it when this fails
		if way == "drained" {
			rome.until(t, "the tenant is seen", tenant, func() bool { return true })
			patch := client.MergeFrom(tenant.DeepCopy())
			tenant.Spec.TenantCondition = authv1beta1.TenantActive
			if err := rome.Patch(t.Context(), tenant, patch); err != nil {
				t.Fatal(err)
			}
		}
	}
	rome.gone(t, tenant)
}

// TestAttackFormerClientCAStillUsed: the provider has replaced its client CA, and its API server trusts the new one only.
// The cluster's signer is still given the former CA, so that no consumer can authenticate with what it signs.
//
// Outcome: a condition of the Tenant says so, and the consumer is not given one certificate after another. Once the
// signer has the new CA and the request is deleted, the consumer gets a certificate that the API server accepts.
func TestAttackFormerClientCAStillUsed(t *testing.T) {
	t.Parallel()
	rome := startCluster(t, "rome")
	former, signer := formerCA()
	published := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: plan.ClientCAsNamespace, Name: plan.ClientCAsConfigMap}}
	until(t, "the API server trusts the former CA", func(ctx context.Context) (bool, error) {
		err := rome.Get(ctx, client.ObjectKeyFromObject(published), published)
		if err != nil || bytes.Contains([]byte(published.Data[plan.ClientCAsField]), former) {
			return err == nil, client.IgnoreNotFound(err)
		}
		patch := client.MergeFrom(published.DeepCopy())
		published.Data[plan.ClientCAsField] += string(former)
		return false, rome.Patch(ctx, published, patch)
	})
	var signed atomic.Int32
	var current atomic.Bool
	go certify(t.Context(), t, rome, func(template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
		signed.Add(1)
		if current.Load() {
			return rome.server.Sign(template, public)
		}
		return signer(template, public)
	})
	tenant, key := admittedTenant(t, rome)
	ready := func() *metav1.Condition { return meta.FindStatusCondition(tenant.Status.Conditions, "Ready") }
	rome.until(t, "the tenant is Ready", tenant, func() bool { return ready() != nil && ready().Status == metav1.ConditionTrue })
	first := tenant.Status.AuthParams.SignedCRT

	rome.delete(t, published) // the API server makes it anew, without the former CA
	rome.until(t, "the tenant tells that the signer uses another CA", tenant, func() bool {
		return ready().Reason == plan.ReasonCertificateUntrusted && strings.Contains(ready().Message, "delete the CertificateSigningRequest")
	})
	if n := signed.Load(); n != 2 || !bytes.Equal(tenant.Status.AuthParams.SignedCRT, first) {
		t.Errorf("%d certificates were signed, and the first replaced: %v", n, !bytes.Equal(tenant.Status.AuthParams.SignedCRT, first))
	}
	milan := asConsumer(tenant, key)
	if err := milan.List(t.Context(), &authv1beta1.ResourceSliceList{}, client.InNamespace(atRome)); !apierrors.IsUnauthorized(err) {
		t.Errorf("the API server answers a certificate of the former CA with %v", err)
	}

	current.Store(true)
	if err := rome.DeleteAllOf(t.Context(), &certificatesv1.CertificateSigningRequest{}, client.MatchingLabels{api.LabelRemoteTenantCSR: "true"}); err != nil {
		t.Fatal(err)
	}
	rome.until(t, "the tenant is Ready again", tenant, func() bool { return ready().Status == metav1.ConditionTrue })
	milan = asConsumer(tenant, key)
	until(t, "the consumer is accepted", func(ctx context.Context) (bool, error) {
		err := milan.List(ctx, &authv1beta1.ResourceSliceList{}, client.InNamespace(atRome))
		return err == nil, ignoreForbidden(err)
	})
	if n := signed.Load(); n != 3 {
		t.Errorf("%d certificates were signed", n)
	}
}

// TestAttackKeyOfAnotherPeer: a cluster that is consumer and provider of another has a peering user there. It lists the
// Secrets of its tenant namespace, where the other cluster's kubeconfig for it is, and with the private key enters a
// third cluster, whose certificates for the other cluster it has seen.
//
// Outcome: the private key in the kubeconfig is for this peer alone: the third cluster's certificate is for another.
// The peering user reads no Secret of Liqo's namespace, where the keys are, and of the namespaces of other peers.
func TestAttackKeyOfAnotherPeer(t *testing.T) {
	t.Parallel()
	milan, oslo := startCluster(t, "milan"), startCluster(t, "oslo")
	go certify(t.Context(), t, oslo, oslo.server.Sign)
	_, ca := formerCA() // rome's: it signs what it likes
	for _, peer := range []string{"rome", "oslo"} {
		milan.create(t, tenantNamespace("liqo-tenant-"+peer, peer))
	}
	key := func(peer string) crypto.Signer {
		return must(plan.ParsePrivateKey(milan.field(t, "liqo", api.PeerKeysSecretName("liqo-tenant-"+peer), api.PrivateKeyField)))
	}
	atOslo := admittedWith(t, oslo, key("oslo"))
	forRome := must(ca(&x509.Certificate{Subject: pkix.Name{CommonName: "milan", Organization: []string{api.ControlPlaneOrganization}}}, key("rome").Public()))
	control := &authv1beta1.Identity{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: api.ControlPlaneIdentityName("rome"), Labels: peerLabel("rome")},
		Spec: authv1beta1.IdentitySpec{ClusterID: "rome", Type: authv1beta1.IdentityControlPlane, AuthParams: &authv1beta1.AuthParams{
			APIServer: "https://192.0.2.1:6443", SignedCRT: forRome,
		}},
	}
	milan.create(t, control)
	milan.field(t, control.Namespace, api.KubeconfigSecretName(control.Name), api.KubeconfigField)
	until(t, "milan's key enters oslo", func(ctx context.Context) (bool, error) {
		err := asConsumer(atOslo, key("oslo")).List(ctx, &authv1beta1.ResourceSliceList{}, client.InNamespace(atRome))
		return err == nil, ignoreForbidden(err)
	})

	peering := milan.peeringUser(t, control.Namespace)
	var secrets corev1.SecretList
	until(t, "the peering user has its rights", func(ctx context.Context) (bool, error) {
		err := peering.List(ctx, &secrets, client.InNamespace(control.Namespace))
		return err == nil, ignoreForbidden(err)
	})
	stolen := 0
	for _, s := range secrets.Items {
		config, err := clientcmd.RESTConfigFromKubeConfig(s.Data[api.KubeconfigField])
		if err != nil || len(config.KeyData) == 0 {
			continue
		}
		stolen++
		taken, err := asConsumerWith(atOslo, config.KeyData)
		if err == nil {
			err = taken.List(t.Context(), &authv1beta1.ResourceSliceList{}, client.InNamespace(atRome))
		}
		if err == nil {
			t.Errorf("the key in Secret %s enters another provider", s.Name)
		}
	}
	if stolen == 0 {
		t.Error("there is no kubeconfig to steal: the test looks at the wrong place")
	}
	for _, namespace := range []string{"liqo", "liqo-tenant-oslo"} {
		if err := peering.List(t.Context(), &secrets, client.InNamespace(namespace)); !apierrors.IsForbidden(err) {
			t.Errorf("the peering user lists Secrets of %s: %v", namespace, err)
		}
	}
}

// peeringUser is one with the right of the chart's role that matters.
func (c cluster) peeringUser(t *testing.T, namespace string) client.Client {
	t.Helper()
	c.create(t, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: api.ClusterRolePeeringUserTenantNamespace},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "delete", "get", "list"}}},
	}, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "peering-user"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: api.ClusterRolePeeringUserTenantNamespace},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "peering"}},
	})
	return must(client.New(c.server.ConfigFor("peering", api.ControlPlaneOrganization, "system:authenticated"), client.Options{Scheme: scheme.New()}))
}

// formerCA is a CA (PEM) and how it signs, as apitest.Server.Sign does.
func formerCA() ([]byte, func(*x509.Certificate, crypto.PublicKey) ([]byte, error)) {
	public, key, _ := ed25519.GenerateKey(nil) // crypto/rand does not fail
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "former"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	encode := func(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}) }
	serial := int64(1)
	return encode(must(x509.CreateCertificate(nil, ca, ca, public, key))), func(template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
		serial++
		template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(serial), ca.NotBefore, ca.NotAfter
		der, err := x509.CreateCertificate(nil, template, ca, public, key)
		return encode(der), err
	}
}

// admittedTenant is milan's Tenant once it has its credentials, and milan's key.
func admittedTenant(t *testing.T, rome cluster) (*authv1beta1.Tenant, ed25519.PrivateKey) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return admittedWith(t, rome, key), key
}

// admittedWith is milan's Tenant for a key once it has its credentials.
func admittedWith(t *testing.T, rome cluster, key crypto.Signer) *authv1beta1.Tenant {
	t.Helper()
	rome.create(t, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: api.ClusterRoleRemoteControlPlane},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{authv1beta1.GroupVersion.Group}, Resources: []string{"renews", "resourceslices"}, Verbs: []string{"*"},
		}},
	}, tenantNamespace(atRome, "milan"), secret(atRome, api.NonceSecret, api.LabelNonce, nil))
	tenant := &authv1beta1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Namespace: atRome, Name: "milan"},
		Spec: authv1beta1.TenantSpec{
			ClusterID: "milan", Signature: must(plan.Sign(key, rome.field(t, atRome, api.NonceSecret, api.NonceField))),
			PublicKey: must(plan.EncodePublicKey(key.Public())), CSR: must(plan.NewRequest(key, plan.ControlPlaneSubject("milan"))),
		},
	}
	rome.create(t, tenant)
	rome.until(t, "the tenant has credentials", tenant, func() bool { return tenant.Status.AuthParams != nil })
	return tenant
}

// asConsumer enters the provider with a Tenant's certificate.
func asConsumer(tenant *authv1beta1.Tenant, key crypto.Signer) client.WithWatch {
	return must(asConsumerWith(tenant, must(plan.EncodePrivateKey(key))))
}

// asConsumerWith enters with a key (PEM) that may be of another.
func asConsumerWith(tenant *authv1beta1.Tenant, key []byte) (client.WithWatch, error) {
	params := tenant.Status.AuthParams
	return client.NewWithWatch(&rest.Config{Host: params.APIServer, QPS: -1, TLSClientConfig: rest.TLSClientConfig{
		CAData: params.CA, CertData: params.SignedCRT, KeyData: key,
	}}, client.Options{Scheme: scheme.New()})
}

// certify stands for the cluster's signer.
func certify(ctx context.Context, t *testing.T, c cluster, sign func(*x509.Certificate, crypto.PublicKey) ([]byte, error)) {
	_ = wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var requests certificatesv1.CertificateSigningRequestList
		if err := c.List(ctx, &requests); err != nil {
			return false, nil // the test ends, or it waits in vain
		}
		for _, request := range requests.Items {
			if len(request.Status.Conditions) == 0 || len(request.Status.Certificate) > 0 {
				continue
			}
			if s := request.Spec.ExpirationSeconds; s == nil || *s != int32(lifetime.Seconds()) {
				t.Errorf("the request to the signer asks for %v seconds", s)
			}
			asked := must(plan.ParseRequest(request.Spec.Request))
			request.Status.Certificate = must(sign(&x509.Certificate{
				Subject: asked.Subject, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			}, asked.PublicKey))
			_ = c.Status().Update(ctx, &request) // tried again
		}
		return false, nil
	})
}

func sliceOf(name string) *authv1beta1.ResourceSlice {
	return &authv1beta1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: atRome, Name: name, Labels: map[string]string{api.LabelReplicated: api.True}}}
}

func watchSlices(t *testing.T, c client.WithWatch) <-chan watch.Event {
	t.Helper()
	opened, err := c.Watch(t.Context(), &authv1beta1.ResourceSliceList{}, client.InNamespace(atRome),
		&client.ListOptions{Raw: &metav1.ListOptions{TimeoutSeconds: new(int64(24 * 60 * 60))}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(opened.Stop)
	return opened.ResultChan()
}

func awaitEvent(t *testing.T, events <-chan watch.Event, kind watch.EventType, name string) {
	t.Helper()
	for deadline := time.After(patience.Limit); ; {
		select {
		case e, open := <-events:
			if !open {
				t.Fatalf("the watch has ended without %s %s", kind, name)
			}
			if obj, ok := e.Object.(*authv1beta1.ResourceSlice); ok && e.Type == kind && obj.Name == name {
				return
			}
		case <-deadline:
			t.Fatalf("the watch does not tell %s %s", kind, name)
		}
	}
}

func until(t *testing.T, claim string, holds func(context.Context) (bool, error)) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience.Limit, true, holds); err != nil {
		t.Fatalf("waited until %s: %v", claim, err)
	}
}

func ignoreForbidden(err error) error {
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}
