// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
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
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/liqo-go/liqo/internal/patience"
	"github.com/liqo-go/liqo/internal/remote"
)

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
	peer, err := remote.New(t.Context(), kubeconfigOf(t, server))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	messages, checked := map[string]bool{}, 0
	peer.Monitor(ctx, remote.Checks{Interval: time.Second, Timeout: patience.Limit}, func(_ time.Time, h remote.Health) bool {
		probe := outcome(h)
		messages[probe.Message] = true
		if checked++; checked == 4 {
			cancel()
		}
		return probe.Alive
	})
	if len(messages) != 1 || messages[""] {
		t.Errorf("%d messages: %v", len(messages), messages)
	}
}
