// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync/atomic"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=create;get

const (
	// awsSigner signs serving certificates of kubelets on EKS.
	awsSigner = "beta.eks.amazonaws.com/app-serving"
	// pollInterval is the time between two reads of a request, and pollTime limits the wait for its
	// certificate.
	pollInterval = 250 * time.Millisecond
	pollTime     = time.Minute
	// requestInterval is the time until the next request if one was not signed.
	requestInterval = 30 * time.Second
	// selfSignedLife is long, because clients cannot verify the certificate anyway.
	selfSignedLife = 10 * 365 * 24 * time.Hour
)

// certificates holds the serving certificate of the kubelet API. Until the cluster has signed one,
// it is self-signed, which API servers that do not verify kubelets accept.
type certificates struct {
	requests certificatesclient.CertificateSigningRequestInterface
	node     string
	address  net.IP
	kind     CertificateType

	current atomic.Pointer[tls.Certificate] // nil = none yet
}

func newCertificates(home kubernetes.Interface, f *Flags) *certificates {
	return &certificates{
		requests: home.CertificatesV1().CertificateSigningRequests(), node: f.NodeName, address: net.ParseIP(f.NodeIP),
		kind: f.CertificateType,
	}
}

// get returns the current certificate for a handshake.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if current := c.current.Load(); current != nil {
		return current, nil
	}
	return nil, errors.New("there is no serving certificate yet")
}

// run obtains certificates until ctx ends. It renews one when four fifths of its validity have
// passed.
func (c *certificates) run(ctx context.Context) error {
	if c.address == nil {
		return errors.New("the node has no address; set POD_IP or --node-ip")
	}
	own, err := c.selfSigned(time.Now())
	if err != nil {
		return err
	}
	c.current.Store(own)
	for c.kind != CertificateSelfSigned {
		wait := requestInterval
		signed, err := c.signed(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			log.FromContext(ctx).Error(err, "get serving certificate")
		default:
			c.current.Store(signed)
			wait = time.Until(signed.Leaf.NotAfter) * 4 / 5
			log.FromContext(ctx).Info("serving certificate signed", "expires", signed.Leaf.NotAfter)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
	<-ctx.Done()
	return nil
}

func (c *certificates) subject() pkix.Name {
	return pkix.Name{CommonName: plan.NodeUser(c.node), Organization: []string{plan.NodesGroup}}
}

// signed requests a certificate from the cluster and waits for it.
func (c *certificates) signed(ctx context.Context) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: c.subject(), IPAddresses: []net.IP{c.address}}, key)
	if err != nil {
		return nil, fmt.Errorf("make certificate request: %w", err)
	}
	signer := certificatesv1.KubeletServingSignerName
	if c.kind == CertificateAWS {
		signer = awsSigner
	}
	request, err := c.requests.Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "liqo-kubelet-",
			Labels:       map[string]string{api.LabelManaged: api.True, api.LabelVirtualNode: c.node},
		},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: signer,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("create certificate request: %w", err)
	}
	chain, err := c.wait(ctx, request.Name)
	if err != nil {
		return nil, err
	}
	return pair(chain, key)
}

// wait polls a request until it is signed or denied, or the time is over.
func (c *certificates) wait(ctx context.Context, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTime)
	defer cancel()
	for {
		request, err := c.requests.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("get certificate request %s: %w", name, err)
		}
		if len(request.Status.Certificate) > 0 {
			return request.Status.Certificate, nil
		}
		for _, condition := range request.Status.Conditions {
			if condition.Type != certificatesv1.CertificateApproved {
				return nil, fmt.Errorf("certificate request %s: %s: %s", name, condition.Type, condition.Message)
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("certificate request %s: not signed; is the cluster's kubelet-serving signer "+
				"running?", name)
		case <-time.After(pollInterval):
		}
	}
}

// pair returns a certificate chain with its key, and the leaf parsed.
func pair(chain []byte, key *ecdsa.PrivateKey) (*tls.Certificate, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	// X509KeyPair also parses the leaf.
	cert, err := tls.X509KeyPair(chain, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if err != nil {
		return nil, fmt.Errorf("parse serving certificate: %w", err)
	}
	return &cert, nil
}

// selfSigned returns a self-signed certificate for the node's name and address.
func (c *certificates) selfSigned(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: c.subject(), IPAddresses: []net.IP{c.address},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(selfSignedLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("sign serving certificate: %w", err)
	}
	return pair(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key)
}
