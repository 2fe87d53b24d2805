// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/url"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/liqo-go/liqo/api"
)

// Kubeconfig holds the fields of a kubeconfig made by Liqo.
type Kubeconfig struct {
	// Cluster is the provider's ID, User the identity's name, Namespace the tenant namespace
	// in the provider.
	Cluster, User, Namespace string
	// Server is the provider's API server, Proxy the HTTP CONNECT proxy on the way (may be empty).
	Server, Proxy string
	// CA is a PEM bundle; empty = the roots of the system.
	CA []byte
	// Certificate and Key are the client's (PEM).
	Certificate, Key []byte
}

// object is a JSON object; it is encoded with sorted keys.
type object map[string]any

// Encode returns the kubeconfig as YAML. It refuses addresses that would send requests in
// clear text.
func (k Kubeconfig) Encode() ([]byte, error) {
	if err := checkURL(k.Server, "https"); err != nil {
		return nil, fmt.Errorf("read API server address: %w", err)
	}
	cluster := object{"server": k.Server}
	if len(k.CA) > 0 {
		cluster["certificate-authority-data"] = k.CA
	}
	if k.Proxy != "" {
		if err := checkURL(k.Proxy, "http", "https", "socks5"); err != nil {
			return nil, fmt.Errorf("read proxy address: %w", err)
		}
		cluster["proxy-url"] = k.Proxy
	}
	data, err := yaml.Marshal(object{
		"apiVersion": "v1", "kind": "Config", "preferences": object{}, "current-context": api.KubeconfigContext,
		"clusters": []object{{"name": k.Cluster, "cluster": cluster}},
		"users": []object{{"name": k.User,
			"user": object{"client-certificate-data": k.Certificate, "client-key-data": k.Key}}},
		"contexts": []object{{"name": api.KubeconfigContext,
			"context": object{"cluster": k.Cluster, "user": k.User, "namespace": k.Namespace}}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig: %w", err)
	}
	return data, nil
}

// checkURL accepts a URL with a host and one of the schemes.
func checkURL(address string, schemes ...string) error {
	u, err := url.Parse(address)
	if err != nil {
		return fmt.Errorf("parse URL: %w", err)
	}
	if u.Host == "" || !slices.Contains(schemes, u.Scheme) {
		return fmt.Errorf("%q is not a URL of scheme %q with a host", address, schemes)
	}
	return nil
}
