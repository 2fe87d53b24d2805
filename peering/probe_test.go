// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestPeerThatIsHeardIsAskedSeldom: an open connection tells that it lives, and its end is noticed.
func TestPeerThatIsHeardIsAskedSeldom(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	text := kubeconfigOf(t, server)
	p := newProber(time.Second, patience)
	const looks = 8
	started := time.Now()
	for range looks {
		outcome, after := p.look(t.Context(), "rome", text)
		for outcome == nil {
			<-time.After(probeSoon)
			outcome, after = p.look(t.Context(), "rome", text)
		}
		if !outcome.Alive {
			t.Fatalf("a peer that lives is not alive: %s", outcome.Message)
		}
		<-time.After(after)
	}
	// On a machine so slow that every look comes when it is time to ask, it asks at every look.
	if n, most := int(asked.Load()), 1+int(time.Since(started)/(askedAfter*time.Second)); n == 0 || n > most {
		t.Errorf("asked %d times in %d looks, want %d at most", n, looks, most)
	}
	server.CloseClientConnections()
	server.Close()
	for began := time.Now(); ; {
		outcome, after := p.look(t.Context(), "rome", text)
		if !outcome.Alive {
			break
		}
		if time.Since(began) > patience {
			t.Fatal("a peer that is gone is alive")
		}
		<-time.After(after)
	}
}

// kubeconfigOf leads to a server of TLS.
func kubeconfigOf(t *testing.T, server *httptest.Server) []byte {
	t.Helper()
	text, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: "c",
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "c"}},
		Clusters: map[string]*clientcmdapi.Cluster{"c": {
			Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"c": {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestExpiredCertificateIsToldOnce: what is said of a peer whose certificate has expired does not tell the
// time, for it would be written at every probe.
func TestExpiredCertificateIsToldOnce(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	about := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-2 * time.Hour), NotAfter: now.Add(-time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	server.Config.ErrorLog = log.New(t.Output(), "", 0)
	server.StartTLS()
	defer server.Close()
	p := newProber(time.Second, 5*time.Second)
	said := map[string]bool{}
	text := kubeconfigOf(t, server)
	for range 4 {
		outcome, after := p.look(t.Context(), "rome", text)
		if outcome != nil {
			said[outcome.Message] = true
		}
		<-time.After(after)
	}
	if len(said) != 1 {
		t.Errorf("said %d things: %v", len(said), said)
	}
}
