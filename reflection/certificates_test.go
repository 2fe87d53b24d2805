// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
)

const signer = "example.com/workloads"

// certificatesAreOfHomesSigners: a pod gets certificates that home's signers issue, or says why it gets none. It keeps
// them while a signer refuses to renew them, and tokens are renewed.
func certificatesAreOfHomesSigners(t *testing.T, w *world) {
	stop := w.reflect()
	p := pod("certified")
	p.Spec.Volumes[0].Projected.Sources = append(p.Spec.Volumes[0].Projected.Sources,
		corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{
			SignerName: signer, KeyType: "ECDSAP256", CredentialBundlePath: "tls/both.pem",
			UserAnnotations: map[string]string{"example.com/team": "web"},
		}},
		corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{
			SignerName: signer, KeyType: "ED25519", KeyPath: "key.pem", CertificateChainPath: "chain.pem",
		}})
	w.create(w.home, p)
	first := w.requests(p, 2)
	var account corev1.ServiceAccount
	var virtual corev1.Node
	w.must("read account and node", errors.Join(
		w.home.Get(t.Context(), types.NamespacedName{Namespace: homeNS, Name: "default"}, &account),
		w.home.Get(t.Context(), types.NamespacedName{Name: node}, &virtual)))
	annotated := 0
	for _, r := range first {
		got := []any{r.Spec.SignerName, r.Spec.PodName, r.Spec.ServiceAccountName, r.Spec.ServiceAccountUID, r.Spec.NodeName, r.Spec.NodeUID}
		if err := equal(fmt.Sprint([]any{signer, p.Name, "default", account.UID, node, virtual.UID}), fmt.Sprint(got)); err != nil {
			t.Error(err)
		}
		annotated += len(r.Spec.UnverifiedUserAnnotations)
	}
	if annotated != 1 {
		t.Errorf("%d annotations of a user", annotated)
	}
	var secret corev1.Secret
	name := types.NamespacedName{Namespace: remoteNS, Name: api.ServiceAccountTokenSecretName(p.Name)}
	w.answer(first[0], "")
	w.answer(first[1], "")
	w.exists(w.remote, &secret, remoteNS, name.Name, func() error { return equal(5, len(secret.Data)) })
	whole := []string{"-bundle.api.tls_both.pem", "-key.api.key.pem", "-chain.api.chain.pem"}
	for _, pair := range [][2]string{{whole[0], whole[0]}, {whole[2], whole[1]}} {
		if _, err := tls.X509KeyPair(secret.Data[pair[0]], secret.Data[pair[1]]); err != nil {
			t.Errorf("%s and %s: %v", pair[0], pair[1], err)
		}
	}
	shadow := w.shadow(p.Name)
	var items []corev1.KeyToPath
	for _, s := range shadow.Spec.Pod.Volumes[0].Projected.Sources {
		if s.PodCertificate != nil {
			t.Error("the provider's kubelet requests the certificate")
		}
		if s.Secret != nil {
			items = append(items, s.Secret.Items...)
		}
	}
	paths := map[string]string{whole[0]: "tls/both.pem", whole[1]: "key.pem", whole[2]: "chain.pem"}
	for _, item := range items {
		if want, ok := paths[item.Key]; ok && item.Path == want {
			delete(paths, item.Key)
		}
	}
	if len(paths) > 0 {
		t.Errorf("not mounted: %v of %v", paths, items)
	}

	refused := pod("uncertified")
	refused.Spec.Volumes[0].Projected.Sources = append(refused.Spec.Volumes[0].Projected.Sources,
		corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{
			SignerName: signer, KeyType: "ED25519", CredentialBundlePath: "both.pem",
		}})
	w.create(w.home, refused)
	w.answer(w.requests(refused, 1)[0], "unknown team")
	w.event(refused.Name, "FailedSATokensReflection", "Denied: Refused: unknown team")

	kept := string(secret.Data[whole[0]])
	const refresh, past = "offloading.liqo.io/certificate-refresh", "2020-01-01T00:00:00Z"
	secret.Annotations[refresh] = past
	delete(secret.Data, whole[0])
	w.must("lie", w.remote.Update(t.Context(), &secret))
	w.exists(w.remote, &secret, remoteNS, name.Name, func() error {
		return equal([2]any{false, kept}, [2]any{secret.Annotations[refresh] == past, string(secret.Data[whole[0]])})
	})
	// A provider causes no more of them; each look of ours reads the answers that are there.
	stop()
	w.requests(p, 2)
	p.Status.Phase = corev1.PodRunning // from now on only a part of it is kept
	w.must("run", w.home.Status().Update(t.Context(), p))
	secret.Annotations[refresh] = past
	delete(secret.Data, "api.token")
	w.must("let them be renewed", w.remote.Update(t.Context(), &secret))
	defer w.reflect()()
	var renewed string
	for _, r := range w.requests(p, 4)[:2] {
		if len(r.Spec.UnverifiedUserAnnotations) > 0 {
			w.answer(r, "no more")
		} else {
			renewed = w.answer(r, "")
		}
	}
	w.exists(w.remote, &secret, remoteNS, name.Name, func() error {
		return equal([]any{true, kept, renewed}, []any{len(secret.Data["api.token"]) > 0, string(secret.Data[whole[0]]), string(secret.Data[whole[2]])})
	})
	w.event(p.Name, "FailedSATokensReflection", "no more")
	// The former version left certificates to the provider.
	delete(secret.Data, "api.token")
	delete(secret.Data, whole[0])
	w.must("take away", w.remote.Update(t.Context(), &secret))
	w.exists(w.remote, &secret, remoteNS, name.Name, func() error { return equal(true, len(secret.Data["api.token"]) > 0) })
	for _, ended := range []*corev1.Pod{p, refused} { // other stories count requests
		w.must("delete", w.home.Delete(t.Context(), ended, client.GracePeriodSeconds(0)))
		w.gone(w.remote, &corev1.Secret{}, remoteNS, api.ServiceAccountTokenSecretName(ended.Name))
	}
}

// requests waits until a pod has that many requests for certificates, and returns those without an answer first.
func (w *world) requests(p *corev1.Pod, want int) (all []certificatesv1.PodCertificateRequest) {
	w.Helper()
	w.eventually(fmt.Sprintf("%d requests for certificates", want), func(ctx context.Context) error {
		var list certificatesv1.PodCertificateRequestList
		if err := w.home.List(ctx, &list, client.InNamespace(homeNS)); err != nil {
			return err
		}
		all = nil
		for _, r := range list.Items {
			switch {
			case r.Spec.PodUID != p.UID:
			case len(r.Status.Conditions) == 0:
				all = append([]certificatesv1.PodCertificateRequest{r}, all...)
			default:
				all = append(all, r)
			}
		}
		return equal(want, len(all))
	})
	return all
}

// answer plays the signer: it refuses for a reason, or issues a certificate for a day, and returns it.
func (w *world) answer(r certificatesv1.PodCertificateRequest, refusal string) string {
	w.Helper()
	condition := metav1.Condition{Type: certificatesv1.PodCertificateRequestConditionTypeDenied, Status: metav1.ConditionTrue, Reason: "Refused", Message: refusal, LastTransitionTime: metav1.Now()}
	if refusal == "" {
		condition.Type, condition.Reason = certificatesv1.PodCertificateRequestConditionTypeIssued, "Issued"
		asked, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
		w.must("parse the request", err)
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		w.must("make a key", err)
		now := time.Now().Truncate(time.Second)
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.Add(24 * time.Hour)}
		raw, err := x509.CreateCertificate(rand.Reader, template, template, asked.PublicKey, key)
		w.must("issue", err)
		r.Status.CertificateChain = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
		r.Status.NotBefore, r.Status.NotAfter = &metav1.Time{Time: template.NotBefore}, &metav1.Time{Time: template.NotAfter}
		r.Status.BeginRefreshAt = &metav1.Time{Time: now.Add(12 * time.Hour)}
	}
	r.Status.Conditions = []metav1.Condition{condition}
	w.must("answer", w.home.Status().Update(w.Context(), &r))
	return r.Status.CertificateChain
}
