// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

const (
	pemCertificate = "CERTIFICATE"

	// requestNameHash is the number of hex characters in the name of a signing request: 64 bits.
	requestNameHash = 16

	// DefaultLifetime is requested for certificates of peers. It is short, because certificates
	// cannot be revoked, but a third of it suffices to repair a signer that fails at the renewal.
	DefaultLifetime = 30 * 24 * time.Hour
)

// ClientCAsNamespace, ClientCAsConfigMap and ClientCAsField name the ConfigMap in which API servers
// publish the client CAs they trust. They add theirs, and remove only expired ones.
const (
	ClientCAsNamespace = metav1.NamespaceSystem
	ClientCAsConfigMap = "extension-apiserver-authentication"
	ClientCAsField     = "client-ca-file"
)

// ParseCertificate reads the first certificate of a PEM bundle.
func ParseCertificate(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != pemCertificate {
		return nil, errors.New("parse certificate: not a PEM block CERTIFICATE")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parse certificate: %w", err)
	}
	return certificate, nil
}

// RenewAt returns the time at which a certificate is due for renewal: after two thirds of its
// lifetime.
//
//	NotBefore ─────────────────── RenewAt ── LateAt ── NotAfter
//	          2/3 of the life        │ 1/12  │   1/4: reported, so that users can resolve it
//	                                 └ time for retries and replication
func RenewAt(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 3 * 2)
}

// trusted reports whether an API server trusts a certificate (PEM, with intermediates): one of the
// chain is signed by one of its client CAs (PEM). Unless the CAs can be read, every certificate
// counts as trusted. Times are not compared: a certificate of a CA lasts no longer than the CA.
func trusted(chain, clientCAs []byte) bool {
	roots, err := certificates(clientCAs)
	if err != nil || len(roots) == 0 {
		return true
	}
	presented, err := certificates(chain)
	return err != nil || slices.ContainsFunc(presented, func(c *x509.Certificate) bool {
		return slices.ContainsFunc(roots,
			func(root *x509.Certificate) bool { return c.CheckSignatureFrom(root) == nil })
	})
}

// certificates parses all certificates of a PEM bundle.
func certificates(bundle []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != pemCertificate {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse certificate: %w", err)
		}
		out = append(out, c)
	}
	return out, nil
}

// LateAt returns the time from which a certificate in use counts as not renewed. NextCheck ends
// earlier.
func LateAt(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 4 * 3)
}

// NextCheck returns how long to wait before the certificate is checked again. It is 1.1 times the
// time left to RenewAt, so that one check suffices; 0 if renewal is due.
func NextCheck(c *x509.Certificate, now time.Time) time.Duration {
	return max(RenewAt(c).Sub(now)*11/10, 0)
}

// untilLate returns how long to wait until LateAt; 0 if it has passed.
func untilLate(c *x509.Certificate, now time.Time) time.Duration { return max(LateAt(c).Sub(now), 0) }

// validUntil returns the end of a certificate's validity for messages. It is constant, so
// conditions may hold it.
func validUntil(c *x509.Certificate) string { return c.NotAfter.UTC().Format(time.RFC3339) }

// Issue describes one certificate that a provider keeps valid for a consumer.
type Issue struct {
	// Namespace and Secret name the Secret that keeps the certificate.
	Namespace, Secret string
	// Peer is the consumer's cluster ID.
	Peer string
	// Request is the signing request (PEM), already checked.
	Request []byte
	// Held is the certificate (PEM) handed out so far; empty at first.
	Held []byte
	// Signing is the object named SigningName, nil when there is none.
	Signing *certificatesv1.CertificateSigningRequest
	// Lifetime is asked of the signer, which may give less; 0 leaves it to the signer.
	Lifetime time.Duration
	// ClientCAs holds the client CAs (PEM) that the API server trusts; empty means unknown.
	ClientCAs []byte
	Now       time.Time
}

// Held returns the certificate (PEM) in credentials; nil for none.
func Held(p *authv1beta1.AuthParams) []byte {
	if p == nil {
		return nil
	}
	return p.SignedCRT
}

// HeldFor returns the certificate in held when it was issued for the request: same key and
// subject. Otherwise, for instance after the consumer changed its key, it returns nil.
func HeldFor(held, request []byte) *x509.Certificate {
	certificate, err := ParseCertificate(held)
	if err != nil {
		return nil
	}
	asked, err := ParseRequest(request)
	if err != nil || !sameKey(asked.PublicKey, certificate.PublicKey) ||
		asked.Subject.String() != certificate.Subject.String() {
		return nil
	}
	return certificate
}

// SigningName returns the name of the signing request that issues or renews a certificate. The name
// depends on the certificate that is replaced. So each renewal has its own request, and a stale
// cache leads to the same name.
func SigningName(namespace string, request, held []byte) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n", namespace, request)
	if certificate := HeldFor(held, request); certificate != nil {
		sum.Write(certificate.SerialNumber.Bytes())
	}
	return api.CSRGenerateName + hex.EncodeToString(sum.Sum(nil))[:requestNameHash]
}

// plan returns the certificate (PEM) to hand out, or nil, and the plan of its
// Secret and, while another one is pending, of the signing request. The plan waits while there is
// no certificate, and is degraded while one that is due for replacement is in use.
//
// A certificate is due for renewal at RenewAt, or immediately if the API server does not trust it.
// The signing request is kept until its certificate is in use. A new certificate that is not
// trusted either does not replace the current one, because that would repeat for ever.
func (i Issue) plan() (certificate []byte, plan desired.Plan) {
	held := HeldFor(i.Held, i.Request)
	if held != nil && trusted(i.Held, i.ClientCAs) && i.Now.Before(RenewAt(held)) {
		secret := []desired.Object{i.secret(i.Held)}
		return i.Held, desired.Plan{Objects: secret, RequeueAfter: NextCheck(held, i.Now)}
	}
	plan.Objects = []desired.Object{i.signing()}
	if held != nil && i.Now.Before(held.NotAfter) {
		certificate, plan.Degraded = i.Held, i.due(held)
		if plan.RequeueAfter = untilLate(held, i.Now); plan.RequeueAfter == 0 {
			plan.RequeueAfter = held.NotAfter.Sub(i.Now)
		}
	}
	if i.signed() && (certificate == nil || trusted(i.Signing.Status.Certificate, i.ClientCAs)) {
		signed := HeldFor(i.Signing.Status.Certificate, i.Request)
		certificate, plan.Degraded = i.Signing.Status.Certificate, desired.Verdict{}
		plan.Events = []desired.Event{{Reason: "CertificateIssued",
			Message: fmt.Sprintf("cluster %q has a certificate of user %q and groups %q until %s",
				i.Peer, signed.Subject.CommonName, signed.Subject.Organization, validUntil(signed))}}
	}
	if certificate == nil {
		plan.Verdict = signingState(i.Signing)
	} else {
		plan.Objects = append(plan.Objects, i.secret(certificate))
	}
	return certificate, plan
}

// signed reports whether the signer has answered the request.
func (i Issue) signed() bool {
	return i.Signing != nil && HeldFor(i.Signing.Status.Certificate, i.Request) != nil
}

// due returns why a certificate due for replacement is still in use. Either the API server trusts
// neither it nor its successor, or the signer refused or is late.
func (i Issue) due(held *x509.Certificate) desired.Verdict {
	state := signingState(i.Signing)
	switch {
	case i.signed():
		return desired.Wait(ReasonCertificateUntrusted,
			"the signer uses a CA that the API server does not trust (client-ca-file in ConfigMap %s/%s); "+
				"let both use the same, then delete the CertificateSigningRequest labelled %s=true to ask again",
			ClientCAsNamespace, ClientCAsConfigMap, api.LabelRemoteTenantCSR).Verdict
	case !trusted(i.Held, i.ClientCAs):
		return desired.Wait(ReasonCertificateUntrusted,
			"the API server does not trust the CA of the certificate any more (client-ca-file in ConfigMap %s/%s), "+
				"and a new one is asked for: %s. A consumer that is refused runs 'liqoctl authenticate' then",
			ClientCAsNamespace, ClientCAsConfigMap, state.Message).Verdict
	case state.Reason == ReasonRemoteCertificateFailed || !i.Now.Before(LateAt(held)):
		return desired.Wait(ReasonCertificateNotRenewed,
			"the certificate is valid until %s and has not been renewed: %s", validUntil(held), state.Message).Verdict
	}
	return desired.Verdict{}
}

// signing asks the cluster's signer for the certificate.
func (i Issue) signing() *certificatesv1.CertificateSigningRequest {
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{
			Name:   SigningName(i.Namespace, i.Request, i.Held),
			Labels: map[string]string{api.LabelRemoteTenantCSR: "true", api.LabelRemoteClusterID: i.Peer},
		},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    i.Request,
			SignerName: certificatesv1.KubeAPIServerClientSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}
	if i.Lifetime > 0 {
		request.Spec.ExpirationSeconds = new(int32(i.Lifetime.Seconds()))
	}
	return request
}

// secret returns the Secret that shows the request and the certificate; nothing reads it back.
func (i Issue) secret(certificate []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: i.Namespace, Name: i.Secret,
			Labels: map[string]string{api.LabelRemoteClusterID: i.Peer},
		},
		Data: map[string][]byte{api.CSRField: i.Request, api.CertificateField: certificate},
	}
}

// signingState returns the reason why the signer has not issued a certificate.
func signingState(r *certificatesv1.CertificateSigningRequest) desired.Verdict {
	if r != nil {
		for _, c := range r.Status.Conditions {
			switch c.Type {
			case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
				return desired.Wait(ReasonRemoteCertificateFailed, "the certificate was refused (%s: %s); "+
					"delete the CertificateSigningRequest labelled %s=true to ask again", c.Reason, c.Message,
					api.LabelRemoteTenantCSR).Verdict
			}
		}
	}
	return desired.Wait(ReasonCertificatePending,
		"waiting for signer %s; check that the cluster's certificate signing controller runs",
		certificatesv1.KubeAPIServerClientSignerName).Verdict
}
