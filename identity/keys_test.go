// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package identity_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/liqo-go/liqo/identity/plan"
	"github.com/liqo-go/liqo/internal/remote"
)

// keyTypes are those of clusters and of what users make by hand.
func keyTypes() map[string]crypto.Signer {
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	return map[string]crypto.Signer{
		"Ed25519":  must(edwards, err),
		"RSA-2048": must(rsa.GenerateKey(rand.Reader, 2048)),
		"RSA-4096": must(rsa.GenerateKey(rand.Reader, 4096)),
		"ECDSA":    must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)),
	}
}

// TestEveryKeyEntersEveryCluster: consumers' keys of all types, signed by the CAs of all types that clusters
// have, enter by the kubeconfigs made here, and by those that users make with openssl.
func TestEveryKeyEntersEveryCluster(t *testing.T) {
	t.Parallel()
	keys := keyTypes()
	for authority, signer := range keys {
		server, ca := provider(t, signer)
		for _, consumer := range slices.Sorted(maps.Keys(keys)) {
			key := keys[consumer]
			request := must(plan.NewRequest(key, plan.ControlPlaneSubject("milan")))
			asked := must(plan.CheckRequest(request, plan.ControlPlaneSubject("milan")))
			certificate := signed(signer, ca, asked, pkix.Name{CommonName: "milan", Organization: []string{"liqo.io"}})
			caPEM := pemOf("CERTIFICATE", ca.Raw)
			made := must(plan.Kubeconfig{
				Cluster: "rome", User: "milan", Server: server.URL, CA: caPEM,
				Certificate: certificate, Key: must(plan.EncodePrivateKey(key)),
			}.Encode())
			byHand := must(clientcmd.Write(clientcmdapi.Config{
				CurrentContext: "c",
				Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "rome", AuthInfo: "milan"}},
				Clusters:       map[string]*clientcmdapi.Cluster{"rome": {Server: server.URL, CertificateAuthorityData: caPEM}},
				AuthInfos:      map[string]*clientcmdapi.AuthInfo{"milan": {ClientCertificateData: certificate, ClientKeyData: openssl(key)}},
			}))
			for how, kubeconfig := range map[string][]byte{"made here": made, "made by hand": byHand} {
				if who, err := enters(t, kubeconfig); err != nil || who != "milan of [liqo.io]" {
					t.Errorf("a key %s under a CA %s, %s: entered as %q: %v", consumer, authority, how, who, err)
				}
			}
		}
	}
}

// provider is a server that says who enters, with its CA.
func provider(t *testing.T, signer crypto.Signer) (*httptest.Server, *x509.Certificate) {
	t.Helper()
	ca := must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, authority(), authority(), signer.Public(), signer))))
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := r.TLS.PeerCertificates[0].Subject
		fmt.Fprintf(w, "%s of %v", subject.CommonName, subject.Organization)
	}))
	serving := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der := must(x509.CreateCertificate(rand.Reader, serving, ca, signer.Public(), signer))
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: signer}},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: roots,
	}
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, ca
}

func authority() *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
}

// signed returns the certificate that a cluster's signer issues for a request.
func signed(signer crypto.Signer, ca *x509.Certificate, key crypto.PublicKey, subject pkix.Name) []byte {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(3), Subject: subject, NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	return pemOf("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, template, ca, key, signer)))
}

// openssl is a key as 'openssl genrsa -traditional' and 'openssl ecparam -genkey' write it.
func openssl(key crypto.Signer) []byte {
	switch key := key.(type) {
	case *rsa.PrivateKey:
		return pemOf("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
	case *ecdsa.PrivateKey:
		return pemOf("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(key)))
	}
	return must(plan.EncodePrivateKey(key))
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// enters asks the server of a kubeconfig who we are.
func enters(t *testing.T, kubeconfig []byte) (string, error) {
	t.Helper()
	peer, err := remote.New(t.Context(), kubeconfig)
	if err != nil {
		return "", err
	}
	request := must(http.NewRequestWithContext(t.Context(), http.MethodGet, peer.Config().Host, nil))
	answer, err := peer.RoundTrip(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }() // read to its end
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}
