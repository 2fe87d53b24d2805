// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote_test

import (
	"testing"

	"github.com/liqo-go/liqo/internal/remote"
)

// FuzzKubeconfig checks that users who may write the Secret of an identity cannot make this process
// run programs or read files.
func FuzzKubeconfig(f *testing.F) {
	f.Add(kubeconfig("https://192.0.2.1:6443", "proxy-url: http://10.70.0.1:8118", "token: one"))
	f.Add(kubeconfig("https://x", "certificate-authority: /etc/passwd", "exec: {command: sh}"))
	f.Add(kubeconfig("https://192.0.2.1:6443", "proxy-url: http://10.70.0.1:8118", "client-certificate-data: AAAA, client-key-data: AAAA"))
	f.Add([]byte(`{"contexts": [{"name": ""}], "current-context": ""}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		peer, err := remote.New(t.Context(), data)
		if usable := remote.Usable(data); (usable == nil) != (err == nil) {
			t.Errorf("usable: %v, used: %v", usable, err)
		}
		if err != nil {
			return
		}
		c := peer.Credentials()
		if c.ExecProvider != nil || c.AuthProvider != nil || c.BearerTokenFile != "" || c.CAFile+c.CertFile+c.KeyFile != "" || peer.Config().Host == "" {
			t.Errorf("accepted %+v", c)
		}
	})
}
