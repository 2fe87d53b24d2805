// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/identity/plan"
)

// signers returns one key of each type a peer may have.
func signers(t testing.TB) map[string]crypto.Signer {
	t.Helper()
	return map[string]crypto.Signer{
		"Ed25519": key("milan"),
		"RSA":     must(rsa.GenerateKey(rand.Reader, 2048)),
		"ECDSA":   must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)),
	}
}

// TestEveryKeyTypeProvesItself: what one side encodes and signs the other side parses and
// accepts, and nothing else; twice the same input gives the same bytes.
func TestEveryKeyTypeProvesItself(t *testing.T) {
	subject := plan.ControlPlaneSubject("milan")
	for name, signer := range signers(t) {
		t.Run(name, func(t *testing.T) {
			again := must(plan.ParsePrivateKey(must(plan.EncodePrivateKey(signer))))
			public := must(plan.ParsePublicKey(must(plan.EncodePublicKey(again.Public()))))
			signature := must(plan.Sign(signer, []byte("nonce")))
			if err := plan.Verify(public, []byte("nonce"), signature); err != nil {
				t.Errorf("own signature: %v", err)
			}
			if plan.Verify(public, []byte("another"), signature) == nil || plan.Verify(public, []byte("nonce"), signature[1:]) == nil {
				t.Error("a signature of something else is accepted")
			}
			request := must(plan.NewRequest(signer, subject))
			if _, err := plan.CheckRequest(request, subject); err != nil {
				t.Errorf("own request: %v", err)
			}
			if !bytes.Equal(request, must(plan.NewRequest(signer, subject))) || !bytes.Equal(signature, must(plan.Sign(signer, []byte("nonce")))) {
				t.Error("the same input gave other bytes")
			}
		})
	}
}

// TestRawEd25519Key: the 32 bytes alone are a public key too.
func TestRawEd25519Key(t *testing.T) {
	raw := key("milan").Public().(ed25519.PublicKey)
	if !raw.Equal(must(plan.ParsePublicKey(raw))) {
		t.Error("another key came back")
	}
}

// TestWeakKeysAreRefused: a 1024-bit RSA key can be broken.
func TestWeakKeysAreRefused(t *testing.T) {
	t.Setenv("GODEBUG", "rsa1024min=0")
	weak := must(rsa.GenerateKey(rand.Reader, 1024))
	if _, err := plan.ParsePublicKey(must(plan.EncodePublicKey(weak.Public()))); err == nil {
		t.Error("a weak key is accepted")
	}
}

// TestRequestsForMoreAreRefused: alternative names would say who the client is, too.
func TestRequestsForMoreAreRefused(t *testing.T) {
	subject := plan.ControlPlaneSubject("milan")
	template := must(plan.ParseRequest(must(plan.NewRequest(key("milan"), subject))))
	template.DNSNames = []string{"kubernetes.default"}
	der := must(x509.CreateCertificateRequest(nil, template, key("milan")))
	if _, err := plan.CheckRequest(pemOf("CERTIFICATE REQUEST", der), subject); err == nil {
		t.Error("a request with alternative names is accepted")
	}
}

// TestRenewalTimes: due at two thirds of the life, looked at a little later.
func TestRenewalTimes(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	certificate := &x509.Certificate{NotBefore: start, NotAfter: start.Add(30 * time.Minute)}
	if got, want := plan.RenewAt(certificate), start.Add(20*time.Minute); !got.Equal(want) {
		t.Errorf("renewal at %s, want %s", got, want)
	}
	for after, want := range map[time.Duration]time.Duration{
		0: 22 * time.Minute, 10 * time.Minute: 11 * time.Minute, 20 * time.Minute: 0, time.Hour: 0,
	} {
		if got := plan.NextCheck(certificate, start.Add(after)); got != want {
			t.Errorf("%s after the start: next check in %s, want %s", after, got, want)
		}
	}
}

// FuzzRequest: peers send these bytes. What is accepted asks for exactly one user and group.
func FuzzRequest(f *testing.F) {
	subject := plan.ControlPlaneSubject("milan")
	f.Add(must(plan.NewRequest(key("milan"), subject)))
	f.Add(must(plan.NewRequest(key("milan"), plan.Subject{User: "milan", Group: "system:masters"})))
	f.Add([]byte("-----BEGIN CERTIFICATE REQUEST-----"))
	f.Fuzz(func(t *testing.T, data []byte) {
		public, err := plan.CheckRequest(data, subject)
		if err != nil {
			return
		}
		request := must(plan.ParseRequest(data))
		if public == nil || request.Subject.CommonName != "milan" || len(request.Subject.Names) != 2 {
			t.Errorf("accepted a request of %s", request.Subject)
		}
	})
}

// FuzzSignature: neither the key nor the signature of a peer can be trusted to be one. No
// signature but the right one is accepted under the right key.
func FuzzSignature(f *testing.F) {
	message := []byte("nonce")
	right := must(plan.Sign(key("milan"), message))
	for _, signer := range signers(f) {
		f.Add(must(plan.EncodePublicKey(signer.Public())), must(plan.Sign(signer, message)))
	}
	f.Add([]byte(key("milan").Public().(ed25519.PublicKey)), right)
	f.Fuzz(func(t *testing.T, encoded, signature []byte) {
		if plan.Verify(key("milan").Public(), message, signature) == nil && !bytes.Equal(signature, right) {
			t.Error("a second signature is accepted")
		}
		public, err := plan.ParsePublicKey(encoded)
		if err == nil {
			_ = plan.Verify(public, message, signature) // must not panic
		}
	})
}

// FuzzKubeconfig: what a provider sends cannot break out of its field.
func FuzzKubeconfig(f *testing.F) {
	f.Add("rome", "https://192.0.2.1:6443", "http://10.70.0.1:8118", "liqo-tenant-milan")
	f.Add("rome: x\n", "https://a\nb", "", "users:\n- exec: {command: sh}")
	f.Fuzz(func(t *testing.T, cluster, server, proxy, namespace string) {
		data, err := plan.Kubeconfig{Cluster: cluster, User: "me", Namespace: namespace, Server: server, Proxy: proxy, Key: []byte("k")}.Encode()
		if err != nil {
			return
		}
		var config struct {
			Users []struct {
				User map[string]any `json:"user"`
			} `json:"users"`
		}
		if err := yaml.Unmarshal(data, &config); err != nil {
			t.Fatalf("no YAML: %v\n%s", err, data)
		}
		if len(config.Users) != 1 || len(config.Users[0].User) != 2 {
			t.Errorf("one user with certificate and key became %v", config.Users)
		}
	})
}
