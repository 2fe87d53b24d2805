// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func parseCertificate(t *testing.T, b []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(b)
	if block == nil {
		t.Fatalf("no PEM: %q", b)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// Every server is trusted under each name and address it is called by, every client as
// the user and group that Kubernetes expects, and nobody by another cluster.
func TestCertificatesVerify(t *testing.T) {
	rome := cluster(t, "rome", 0, 2, false)
	ca, err := newAuthority("rome-ca", now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := newAuthority("milan-ca", now)
	if err != nil {
		t.Fatal(err)
	}
	servers := map[string]struct {
		identity
		called []string
	}{
		"API server": {apiServerIdentity(rome), []string{"127.0.0.1", "172.31.10.10", "10.110.0.1", "localhost", "kubernetes.default.svc"}},
		"kubelet":    {kubeletIdentity(rome, "n2"), []string{"172.31.10.12", "rome-n2"}},
	}
	for name, server := range servers {
		cert := issueFor(t, ca, server.identity)
		for _, host := range server.called {
			if err := verify(cert, ca, host, x509.ExtKeyUsageServerAuth); err != nil {
				t.Errorf("%s called %s: %v", name, host, err)
			}
			if verify(cert, other, host, x509.ExtKeyUsageServerAuth) == nil {
				t.Errorf("%s called %s is trusted by another cluster", name, host)
			}
		}
	}
	clients := controlPlaneIdentities()
	clients["admin"], clients["kubelet"] = adminIdentity(), kubeletIdentity(rome, "n1")
	for name, client := range clients {
		cert := issueFor(t, ca, client)
		if err := verify(cert, ca, "", x509.ExtKeyUsageClientAuth); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if len(client.names) == 0 && verify(cert, ca, "", x509.ExtKeyUsageServerAuth) == nil {
			t.Errorf("%s may act as a server", name)
		}
	}
	kubelet := issueFor(t, ca, clients["kubelet"])
	if kubelet.Subject.CommonName != "system:node:rome-n1" || kubelet.Subject.Organization[0] != "system:nodes" {
		t.Errorf("kubelet is %s", kubelet.Subject)
	}
}

func issueFor(t *testing.T, ca authority, id identity) *x509.Certificate {
	t.Helper()
	cert, _, err := ca.issue(id)
	if err != nil {
		t.Fatal(err)
	}
	return parseCertificate(t, cert)
}

func verify(cert *x509.Certificate, ca authority, host string, usage x509.ExtKeyUsage) error {
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	_, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}})
	return err
}

// A cluster keeps its authority and its token key, also after a crash between files.
func TestAuthorityIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	rome := Cluster{Name: "rome"}
	first, err := openAuthority(dir, rome, now)
	if err != nil {
		t.Fatal(err)
	}
	again, err := openAuthority(dir, rome, now)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.cert.Raw, again.cert.Raw) || !first.key.Equal(again.key) {
		t.Error("the second opening made another authority")
	}
	if err := os.Remove(filepath.Join(dir, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	repaired, err := openAuthority(dir, rome, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := verify(issueFor(t, repaired, adminIdentity()), repaired, "", x509.ExtKeyUsageClientAuth); err != nil {
		t.Error(err)
	}
}
