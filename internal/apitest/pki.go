// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const (
	caFile                = "ca.crt"
	serverCertFile        = "server.crt"
	serverKeyFile         = "server.key"
	serviceAccountKeyFile = "sa.key"
)

// pki holds the keys and certificates that a client needs, in PEM.
type pki struct {
	ca, caKey, clientCert, clientKey []byte
}

// writePKI makes a CA, a serving certificate for loopback, a client certificate of system:masters
// and the key of service account tokens. It writes the server's files to dir.
func writePKI(dir string) (pki, error) {
	ca, err := newCA()
	if err != nil {
		return pki{}, err
	}
	serverCert, serverKey, err := ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	if err != nil {
		return pki{}, err
	}
	clientCert, clientKey, err := ca.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "apitest", Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return pki{}, err
	}
	_, serviceAccountKey, err := newKey()
	if err != nil {
		return pki{}, err
	}
	for name, content := range map[string][]byte{
		caFile: ca.pem, serverCertFile: serverCert, serverKeyFile: serverKey, serviceAccountKeyFile: serviceAccountKey,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return pki{}, err
		}
	}
	return pki{ca: ca.pem, caKey: ca.keyPEM, clientCert: clientCert, clientKey: clientKey}, nil
}

// Authority returns the certificate and key (PEM) of the authority that signs certificates of the
// server's clients.
func (s *Server) Authority() (certificate, key []byte) { return s.Config.CAData, s.caKey }

// Sign returns a PEM certificate of the server's authority for a client with a public key. The
// serial number of the template is replaced; its validity is set if missing.
func (s *Server) Sign(template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	pair, err := tls.X509KeyPair(s.Config.CAData, s.caKey)
	if err != nil {
		return nil, err
	}
	a := authority{cert: pair.Leaf, key: pair.PrivateKey.(*ecdsa.PrivateKey)}
	return a.sign(template, public)
}

type authority struct {
	cert        *x509.Certificate
	key         *ecdsa.PrivateKey
	pem, keyPEM []byte
}

func newCA() (*authority, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	cert := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "apitest-ca"},
		KeyUsage:              x509.KeyUsageCertSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	ca := &authority{cert: cert, key: key, keyPEM: keyPEM}
	ca.pem, err = ca.sign(cert, key.Public())
	return ca, err
}

// issue makes a key and a certificate for it, both PEM.
func (a *authority) issue(cert *x509.Certificate) (certPEM, keyPEM []byte, err error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	cert.KeyUsage = x509.KeyUsageDigitalSignature
	certPEM, err = a.sign(cert, key.Public())
	return certPEM, keyPEM, err
}

func (a *authority) sign(cert *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	cert.SerialNumber = serial
	if cert.NotAfter.IsZero() { // an hour back, for clocks that differ; no test runs for a day
		cert.NotBefore, cert.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, public, a.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	// Not PKCS#8: kube-apiserver takes service account keys only in this form.
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// CertificateRequest returns a request for a certificate in DER, with a signature and an empty subject.
func CertificateRequest(t testing.TB) []byte {
	t.Helper()
	key, _, err := newKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return request
}
