// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Usable reports why a kubeconfig cannot be used; nil = it can.
func Usable(kubeconfig []byte) error {
	_, err := newAccess(context.Background(), kubeconfig) // nothing connects
	return err
}

// parse turns a kubeconfig into a configuration. Users who may write the Secret must not be able to
// make this process run programs or read its files, so a kubeconfig that names any is refused; the
// error says which field to replace.
func parse(kubeconfig []byte) (*rest.Config, error) {
	raw, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("decode kubeconfig: %w", err)
	}
	kctx, ok := raw.Contexts[raw.CurrentContext]
	if !ok {
		return nil, fmt.Errorf("kubeconfig: current-context %q does not exist", raw.CurrentContext)
	}
	cluster, ok := raw.Clusters[kctx.Cluster]
	if !ok {
		return nil, fmt.Errorf("kubeconfig: cluster %q does not exist", kctx.Cluster)
	}
	user, ok := raw.AuthInfos[kctx.AuthInfo]
	if !ok {
		return nil, fmt.Errorf("kubeconfig: user %q does not exist", kctx.AuthInfo)
	}
	if err := selfContained(cluster, user); err != nil {
		return nil, err
	}
	cfg := &rest.Config{
		Host: cluster.Server,
		TLSClientConfig: rest.TLSClientConfig{
			Insecure:   cluster.InsecureSkipTLSVerify,
			ServerName: cluster.TLSServerName,
			CAData:     cluster.CertificateAuthorityData,
			CertData:   user.ClientCertificateData,
			KeyData:    user.ClientKeyData,
		},
		BearerToken: user.Token,
		Username:    user.Username,
		Password:    user.Password,
		QPS:         -1, // no limit at the client; the API server has priority and fairness
	}
	if cluster.ProxyURL != "" {
		proxy, err := url.Parse(cluster.ProxyURL)
		if err != nil {
			return nil, fmt.Errorf("kubeconfig: proxy-url: %w", err)
		}
		cfg.Proxy = http.ProxyURL(proxy)
	}
	return cfg, nil
}

// selfContained refuses every reference to something outside the kubeconfig.
func selfContained(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) error {
	refused := []struct {
		set         bool
		field, hint string
	}{
		{user.Exec != nil, "exec", "use token or client-certificate-data"},
		{user.AuthProvider != nil, "auth-provider", "use token or client-certificate-data"},
		{user.TokenFile != "", "tokenFile", "use token"},
		{user.ClientCertificate != "", "client-certificate", "use client-certificate-data"},
		{user.ClientKey != "", "client-key", "use client-key-data"},
		{cluster.CertificateAuthority != "", "certificate-authority", "use certificate-authority-data"},
	}
	for _, r := range refused {
		if r.set {
			return fmt.Errorf("kubeconfig: %s is not allowed in a Secret; %s", r.field, r.hint)
		}
	}
	return nil
}
