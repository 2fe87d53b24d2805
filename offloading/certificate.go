// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/ctl"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,verbs=get;list;watch;patch

const (
	// caKey is the key of the authority's certificate in the Secret.
	caKey = "ca"
	// certificateLife is how long a pair is used; renewBefore its end the next one is made.
	certificateLife = 365 * 24 * time.Hour
	renewBefore     = certificateLife / 3
)

// admissionCertificate keeps a serving certificate of the admission server in a Secret, and its
// authority in the webhook configuration. While one follows the other, both authorities are trusted.
type admissionCertificate struct{ options Options }

// Register adds the reconciler to mgr; the leader runs it.
func (a admissionCertificate) Register(mgr manager.Manager) error {
	key := types.NamespacedName{Namespace: a.options.Kubelet.LiqoNamespace, Name: a.options.WebhookSecret}
	r := &certificateReconciler{client: mgr.GetClient(), secret: key}
	named := func(name string) builder.Predicates {
		return builder.WithPredicates(predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetName() == name }))
	}
	toSecret := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: key}}
	})
	return builder.ControllerManagedBy(mgr).Named("admission-certificate").WithOptions(ctl.Options()).
		For(&corev1.Secret{}, named(key.Name)).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, toSecret, named(api.WebhookName)).
		Complete(r)
}

type certificateReconciler struct {
	client client.Client
	secret types.NamespacedName
}

// Reconcile makes Secret and webhook configuration agree.
func (r *certificateReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if req.NamespacedName != r.secret {
		return reconcile.Result{}, nil
	}
	secret, err := ctl.Optional(ctx, r.client, r.secret, &corev1.Secret{})
	if err != nil {
		return reconcile.Result{}, err
	}
	expiry, ok := expiryOf(secret)
	if !ok || time.Until(expiry) < renewBefore {
		if secret, err = r.renew(ctx, secret); err != nil {
			return reconcile.Result{}, err
		}
		expiry, _ = expiryOf(secret)
	}
	if err := r.trust(ctx, secret.Data[caKey]); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: time.Until(expiry) - renewBefore + time.Second}, nil
}

// expiryOf is the end of the serving certificate's life, if there is a usable one.
func expiryOf(secret *corev1.Secret) (time.Time, bool) {
	if secret == nil || len(secret.Data[caKey]) == 0 {
		return time.Time{}, false
	}
	block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
	if block == nil {
		return time.Time{}, false
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, false
	}
	return cert.NotAfter, true
}

// renew makes a new pair. A Secret that somebody changed meanwhile makes it fail and try again.
func (r *certificateReconciler) renew(ctx context.Context, before *corev1.Secret) (*corev1.Secret, error) {
	names := []string{api.ControllerManagerName, api.WebhookName}
	var hosts []string
	for _, name := range names {
		hosts = append(hosts, name+"."+r.secret.Namespace+".svc", name+"."+r.secret.Namespace)
	}
	data, err := newPair(hosts, time.Now())
	if err != nil {
		return nil, err
	}
	if before == nil {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: r.secret.Name, Namespace: r.secret.Namespace, Labels: map[string]string{api.LabelManaged: api.True},
			},
			Data: data,
		}
		return secret, r.client.Create(ctx, secret)
	}
	after := before.DeepCopy()
	metav1.SetMetaDataLabel(&after.ObjectMeta, api.LabelManaged, api.True)
	data[caKey] = slices.Concat(data[caKey], firstBlock(before.Data[caKey]))
	after.Data = data
	return after, r.client.Update(ctx, after)
}

// firstBlock is the newest authority of a bundle.
func firstBlock(bundle []byte) []byte {
	block, _ := pem.Decode(bundle)
	if block == nil {
		return nil
	}
	return pem.EncodeToMemory(block)
}

// newPair makes an authority, whose key is thrown away, and a serving certificate for hosts.
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
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLife),
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
		caKey:                   pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}),
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leafDER}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// trust writes the authority into the webhook configuration, where it differs. It fails when the object changed
// meanwhile.
func (r *certificateReconciler) trust(ctx context.Context, bundle []byte) error {
	webhooks, err := ctl.Optional(ctx, r.client, types.NamespacedName{Name: api.WebhookName}, &admissionregistrationv1.MutatingWebhookConfiguration{})
	if err != nil || webhooks == nil {
		return err
	}
	before := webhooks.DeepCopy()
	for i := range webhooks.Webhooks {
		webhooks.Webhooks[i].ClientConfig.CABundle = bundle
	}
	if !slices.ContainsFunc(before.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
		return !bytes.Equal(w.ClientConfig.CABundle, bundle)
	}) {
		return nil
	}
	if err := r.client.Patch(ctx, webhooks, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patch webhook configuration %s: %w", webhooks.Name, err)
	}
	return nil
}
