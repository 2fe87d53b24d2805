// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/offloading/plan"
)

// TestAdmissionCertificateIsRenewed shows that the first certificate is created, and the next one
// when a third of its validity is left. Clients that trust the CAs in the Secret trust both then.
func TestAdmissionCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	hosts, now := []string{"webhook.liqo.svc"}, time.Now()
	pair := func(at time.Time) map[string][]byte {
		data, err := newPair(hosts, at)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	absent := plan.AdmissionCertificateInput{Root: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "certificate", Namespace: "liqo"}}, Now: now}
	if !absent.Due() {
		t.Error("no certificate is due where there is none")
	}
	absent.Pair = pair(now)
	p := plan.AdmissionCertificate(absent)
	if len(p.Actions) != 1 || p.Actions[0].Verb != desired.Create {
		t.Fatalf("the first certificate: %+v", p.Actions)
	}
	first := p.Actions[0].Object.(*corev1.Secret)
	first.UID, first.ResourceVersion = "1", "7"

	webhooks := &admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: make([]admissionregistrationv1.MutatingWebhook, 2)}
	in := plan.AdmissionCertificateInput{Root: first, Webhooks: webhooks, Now: now.Add(plan.CertificateLife * 2 / 3).Add(-time.Hour)}
	if in.Due() {
		t.Error("a certificate is due before two thirds of its life")
	}
	p = plan.AdmissionCertificate(in)
	if len(p.Actions) != 1 || !p.Actions[0].Locked || p.RequeueAfter <= 0 || p.RequeueAfter > time.Hour {
		t.Fatalf("the authority is not written: %+v", p)
	}
	for _, w := range p.Actions[0].Object.(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks {
		if !bytes.Equal(w.ClientConfig.CABundle, first.Data[plan.AuthorityKey]) {
			t.Error("a webhook is not trusted")
		}
	}

	in.Now = now.Add(plan.CertificateLife * 2 / 3).Add(time.Hour)
	if !in.Due() {
		t.Error("no certificate is due after two thirds of its life")
	}
	in.Pair = pair(in.Now)
	p = plan.AdmissionCertificate(in)
	if len(p.Actions) != 1 || p.Actions[0].Verb != desired.Update || p.Actions[0].Object.GetResourceVersion() != "7" {
		t.Fatalf("the second certificate: %+v", p.Actions)
	}
	second := p.Actions[0].Object.(*corev1.Secret)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(second.Data[plan.AuthorityKey])
	for _, secret := range []*corev1.Secret{first, second} {
		served, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := served.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: hosts[0], CurrentTime: in.Now}); err != nil {
			t.Errorf("a certificate in use is not trusted: %v", err)
		}
	}
}
