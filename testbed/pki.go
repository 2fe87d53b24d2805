// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// certificateLife is longer than any test cluster lives.
const certificateLife = 10 * 365 * 24 * time.Hour

// authority signs all certificates of one cluster, as kubeadm's cluster CA does.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	now  time.Time // start of validity of what it signs, less an hour
}

// identity is what a certificate says about its owner. A server has addresses or names.
type identity struct {
	commonName   string
	organization string // the Kubernetes group; empty: none
	names        []string
	addrs        []netip.Addr
}

// newAuthority makes a self-signed CA.
func newAuthority(commonName string, now time.Time) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, fmt.Errorf("generate key of %s: %w", commonName, err)
	}
	template := x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(certificateLife),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		return authority{}, fmt.Errorf("sign %s: %w", commonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	return authority{cert: cert, key: key, now: now}, err
}

// issue makes a key and signs a certificate for it, both as PEM. Every certificate
// serves for clients; those with names or addresses also for servers.
func (a authority) issue(id identity) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key of %s: %w", id.commonName, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: id.commonName},
		NotBefore:    a.now.Add(-time.Hour),
		NotAfter:     a.now.Add(certificateLife - time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		DNSNames:     id.names,
	}
	if id.organization != "" {
		template.Subject.Organization = []string{id.organization}
	}
	for _, addr := range id.addrs {
		template.IPAddresses = append(template.IPAddresses, net.IP(addr.AsSlice()))
	}
	if len(id.names)+len(id.addrs) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign %s: %w", id.commonName, err)
	}
	keyPEM, err = encodeKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), keyPEM, err
}

func (a authority) certPEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// openAuthority reads the cluster's CA from dir, or makes it. The directory also gets
// the key of service account tokens (sa.key, sa.pub); all of it outlives restarts of
// nodes and dies with the cluster.
func openAuthority(dir string, c Cluster, now time.Time) (authority, error) {
	if a, err := readAuthority(dir, now); !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	a, err := newAuthority(c.Name+"-ca", now)
	if err != nil {
		return authority{}, err
	}
	if err := writeTokenKey(dir); err != nil {
		return authority{}, err
	}
	key, err := encodeKey(a.key)
	if err != nil {
		return authority{}, err
	}
	if err := writeFile(filepath.Join(dir, "ca.key"), key, 0o600); err != nil {
		return authority{}, err
	}
	// Last: its presence says that the others are there.
	return a, writeFile(filepath.Join(dir, "ca.crt"), a.certPEM(), 0o644)
}

func readAuthority(dir string, now time.Time) (authority, error) {
	cert, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return authority{}, err
	}
	key, err := os.ReadFile(filepath.Join(dir, "ca.key"))
	if err != nil {
		return authority{}, err
	}
	c, k, err := parseAuthority(cert, key)
	if err != nil {
		return authority{}, fmt.Errorf("read CA in %s: %w; remove the cluster with 'down'", dir, err)
	}
	return authority{cert: c, key: k, now: now}, nil
}

func parseAuthority(certPEM, keyPEM []byte) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, nil, errors.New("no PEM block")
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, nil, err
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	return cert, key, err
}

func writeTokenKey(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := encodeKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, "sa.key"), private, 0o600); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "sa.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644)
}

// writeFile writes a file completely or not at all, making its directory.
func writeFile(name string, content []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	tmp := name + ".new"
	if err := os.WriteFile(tmp, content, mode); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}

// The identities of a cluster's parts. Names and groups are those Kubernetes' built-in
// role bindings and its node authorizer expect.

func apiServerIdentity(c Cluster) identity {
	return identity{
		commonName: "kube-apiserver",
		names: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local"},
		addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), c.apiAddr(), c.kubernetesService(), c.public()},
	}
}

// kubeletIdentity serves both as the kubelet's client and as its serving certificate.
func kubeletIdentity(c Cluster, node string) identity {
	return identity{
		commonName: "system:node:" + c.nodeName(node), organization: "system:nodes",
		names: []string{c.nodeName(node)}, addrs: []netip.Addr{c.nodeAddr(node)},
	}
}

func adminIdentity() identity {
	return identity{commonName: "admin", organization: "system:masters"}
}

// controlPlaneIdentities are the clients among the control plane's processes.
func controlPlaneIdentities() map[string]identity {
	return map[string]identity{
		"controller-manager": {commonName: "system:kube-controller-manager"},
		"scheduler":          {commonName: "system:kube-scheduler"},
		"kubelet-client":     {commonName: "kube-apiserver-kubelet-client", organization: "system:masters"},
		"front-proxy-client": {commonName: "front-proxy-client"},
	}
}
