// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	identityplan "github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/patience"
)

// TestAttackQuietGrants: a consumer wants to be granted something without being noticed. It asks for two namespaces at once
// and for one that is refused, for so many resources that no event could name them, and soon after for more of them.
//
// Outcome: each grant leaves an event in the consumer's tenant namespace that says who got what and until when: admission,
// certificate, resources, each namespace and each range. A long list of resources is cut, a second grant is an event of its own.
func TestAttackQuietGrants(t *testing.T) {
	t.Parallel()
	const tenant = "liqo-tenant-turin"
	c := install(t, "milan", chart(t))
	if err := c.Load(t.Context(), c.objects); err != nil {
		t.Fatal(err)
	}
	c.control(t)
	go c.sign(t)
	copied := metav1.ObjectMeta{Namespace: tenant, Name: "milan", Labels: map[string]string{
		api.LabelReplicated: api.True, api.LabelReplication: "false", api.LabelRemoteClusterID: "turin",
	}}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := identityplan.NewRequest(key, identityplan.SliceSubject(copied.Name, "turin"))
	if err != nil {
		t.Fatal(err)
	}
	slice := &authv1beta1.ResourceSlice{ObjectMeta: copied, Spec: authv1beta1.ResourceSliceSpec{
		Class: api.DefaultResourceSliceClass, ConsumerClusterID: "turin", ProviderClusterID: "milan", CSR: request,
		Resources: corev1.ResourceList{"cpu": resource.MustParse("77")},
	}}
	for i := range 100 {
		slice.Spec.Resources[corev1.ResourceName(fmt.Sprintf("zz.example.com/%d", i))] = resource.MustParse("1")
	}
	ranges := netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: []string{"10.10.0.0/16"}, External: []string{"10.70.0.0/16"}}}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant, Labels: map[string]string{api.LabelTenantNamespace: api.True, api.LabelRemoteClusterID: "turin"}}},
		&authv1beta1.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "turin"}, Spec: authv1beta1.TenantSpec{
			ClusterID: "turin", AuthzPolicy: authv1beta1.AuthzTolerateNoHandshake,
		}},
		slice,
		&offv1beta1.NamespaceMap{ObjectMeta: copied, Spec: offv1beta1.NamespaceMapSpec{DesiredMapping: map[string]string{
			"shop": "shop-turin", "data": "data-turin", "other": "kube-system",
		}}},
		&netv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "turin", Labels: map[string]string{api.LabelRemoteClusterID: "turin"}},
			Spec: netv1beta1.ConfigurationSpec{Remote: &ranges}},
	} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	user := api.ResourceSliceUserName(copied.Name, "turin")
	c.tells(t, tenant, "TenantAdmitted", `"turin"`, tenant, "until this Tenant is drained or deleted")
	c.tells(t, tenant, "CertificateIssued", `"turin"`, user, "until 20")
	c.tells(t, tenant, "ResourcesGranted", `"turin"`, user, "until this ResourceSlice is deleted", "cpu=77", "…")
	c.tells(t, tenant, "NamespaceCreated", `"turin"`, "shop-turin", "until")
	c.tells(t, tenant, "NamespaceCreated", `"turin"`, "data-turin", "until")
	c.tells(t, tenant, "CIDRGranted", `"turin"`, "10.10.0.0/16", "until")
	c.tells(t, tenant, "CIDRGranted", `"turin"`, "10.70.0.0/16", "until")

	before := slice.DeepCopy()
	slice.Spec.Resources["cpu"] = resource.MustParse("777")
	if err := c.Patch(t.Context(), slice, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	c.tells(t, tenant, "ResourcesGranted", user, "cpu=777,")
}

// tells waits for an event with all words in its message.
func (c *installation) tells(t *testing.T, namespace, reason string, words ...string) {
	t.Helper()
	var told eventsv1.EventList
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience.Limit, true, func(ctx context.Context) (bool, error) {
		err := c.List(ctx, &told, client.InNamespace(namespace))
		return slices.ContainsFunc(told.Items, func(e eventsv1.Event) bool {
			return e.Reason == reason && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(e.Note, w) })
		}), err
	})
	if err != nil {
		for _, e := range told.Items {
			t.Logf("%s %s: %s", e.Regarding.Kind, e.Reason, e.Note)
		}
		t.Error(patience.GaveUp(fmt.Sprintf("an event %s with %q", reason, words), err))
	}
}

// sign is the signer of client certificates that a cluster has.
func (c *installation) sign(t *testing.T) {
	err := wait.PollUntilContextCancel(t.Context(), 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var requests certificatesv1.CertificateSigningRequestList
		if err := c.List(ctx, &requests); err != nil {
			return false, err
		}
		for _, r := range requests.Items {
			if len(r.Status.Certificate) > 0 || !slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
				return c.Type == certificatesv1.CertificateApproved
			}) {
				continue
			}
			asked, err := identityplan.ParseRequest(r.Spec.Request)
			if err != nil {
				return false, err
			}
			r.Status.Certificate, err = c.Sign(&x509.Certificate{
				Subject: asked.Subject, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			}, asked.PublicKey)
			if err = errors.Join(err, c.SubResource("status").Update(ctx, &r)); err != nil {
				return false, err
			}
		}
		return false, nil
	})
	if t.Context().Err() == nil {
		t.Errorf("sign certificates: %v", err)
	}
}
