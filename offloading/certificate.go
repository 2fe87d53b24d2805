// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,verbs=get;list;watch;patch

// admissionCertificate keeps the serving certificate of the admission server in a Secret, and its
// CA in the webhook configuration. The leader does so for all replicas.
func admissionCertificate(o Options) ctl.Registrar {
	key := types.NamespacedName{Namespace: o.Kubelet.LiqoNamespace, Name: o.WebhookSecret}
	atStart := &ctl.Source{}
	atStart.Wake(key)
	ofName := func(kind client.Object, name string) ctl.Watch {
		return ctl.Watch{Kind: kind, Map: func(_ context.Context, _ client.Reader,
			obj client.Object) []reconcile.Request {
			if obj.GetName() != name || obj.GetNamespace() != "" && obj.GetNamespace() != key.Namespace {
				return nil
			}
			return []reconcile.Request{{NamespacedName: key}}
		}}
	}
	return ctl.Controller[*corev1.Secret, plan.AdmissionCertificateInput]{
		Name: "admission-certificate", Quiet: true, Absent: true,
		Watches: []ctl.Watch{
			{Source: atStart}, ofName(&corev1.Secret{}, key.Name),
			ofName(&admissionregistrationv1.MutatingWebhookConfiguration{}, api.WebhookName),
		},
		Gather: gatherAdmissionCertificate,
		Plan:   plan.AdmissionCertificate,
	}
}

func gatherAdmissionCertificate(ctx context.Context, r ctl.Reader,
	root *corev1.Secret) (plan.AdmissionCertificateInput, error) {
	in := plan.AdmissionCertificateInput{Root: root, Now: time.Now()}
	var err error
	if in.Due() {
		var hosts []string
		for _, name := range []string{api.ControllerManagerName, api.WebhookName} {
			hosts = append(hosts, name+"."+root.Namespace+".svc", name+"."+root.Namespace)
		}
		in.Pair, err = newPair(hosts, in.Now)
		return in, err
	}
	in.Webhooks, err = ctl.Optional(ctx, r, types.NamespacedName{Name: api.WebhookName},
		&admissionregistrationv1.MutatingWebhookConfiguration{})
	return in, err
}

// newPair returns a new serving certificate for hosts with its key, and its CA, whose key is
// discarded.
func newPair(hosts []string, now time.Time) (map[string][]byte, error) {
	caKeyPair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "liqo-admission-ca"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(plan.CertificateLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano() + 1), Subject: pkix.Name{CommonName: hosts[0]}, DNSNames: hosts,
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKeyPair.PublicKey, caKeyPair)
	if err != nil {
		return nil, fmt.Errorf("sign authority: %w", err)
	}
	leafDER, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKeyPair)
	if err != nil {
		return nil, fmt.Errorf("sign serving certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return map[string][]byte{
		plan.AuthorityKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}),
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leafDER}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}
