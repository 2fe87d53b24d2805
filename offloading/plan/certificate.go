// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/desired"
)

const (
	// AuthorityKey is the key of the CA certificates in the Secret, the newest first.
	AuthorityKey = "ca"
	// CertificateLife is the validity of the admission server's certificate. It is renewed when
	// renewBefore of it is left.
	CertificateLife = 365 * 24 * time.Hour
	renewBefore     = CertificateLife / 3
)

// AdmissionCertificateInput holds the Secret with the certificate of the admission server. The
// Secret has no UID if it does not exist.
type AdmissionCertificateInput struct {
	Root *corev1.Secret
	// Pair is a new certificate with its key and authority, as a Secret holds them; nil if none is
	// due.
	Pair map[string][]byte
	// Webhooks holds the CA that the API server trusts; nil if it does not exist or a certificate
	// is due.
	Webhooks *admissionregistrationv1.MutatingWebhookConfiguration
	Now      time.Time
}

// AdmissionCertificate writes the certificate, and once the Secret is observed, its CA into the
// webhooks. During a renewal both CAs are trusted. If two replicas write at once, one of them fails
// with a conflict.
func AdmissionCertificate(in AdmissionCertificateInput) desired.Plan {
	switch {
	case in.Pair != nil:
		return desired.Plan{Actions: []desired.Action{in.write()}}
	case in.Webhooks == nil:
		return desired.Plan{RequeueAfter: in.left()}
	}
	trusting := in.Webhooks.DeepCopy()
	for i := range trusting.Webhooks {
		trusting.Webhooks[i].ClientConfig.CABundle = in.Root.Data[AuthorityKey]
	}
	return desired.Plan{
		Actions:      []desired.Action{{Verb: desired.Merge, Locked: true, Before: in.Webhooks, Object: trusting}},
		RequeueAfter: in.left(),
	}
}

func (in AdmissionCertificateInput) write() desired.Action {
	secret := in.Root.DeepCopy()
	metav1.SetMetaDataLabel(&secret.ObjectMeta, api.LabelManaged, api.True)
	secret.Data = maps.Clone(in.Pair)
	if in.Root.UID == "" {
		return desired.Action{Verb: desired.Create, Object: secret}
	}
	if former, _ := pem.Decode(in.Root.Data[AuthorityKey]); former != nil {
		secret.Data[AuthorityKey] = slices.Concat(in.Pair[AuthorityKey], pem.EncodeToMemory(former))
	}
	return desired.Action{Verb: desired.Update, Object: secret}
}

// Due reports whether a new certificate is needed.
func (in AdmissionCertificateInput) Due() bool { return in.left() <= 0 }

// left returns the time until the next certificate is due; 0 if the Secret has no usable one.
func (in AdmissionCertificateInput) left() time.Duration {
	block, _ := pem.Decode(in.Root.Data[corev1.TLSCertKey])
	if block == nil || len(bytes.TrimSpace(in.Root.Data[AuthorityKey])) == 0 {
		return 0
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return 0
	}
	return max(0, certificate.NotAfter.Sub(in.Now)-renewBefore)
}
