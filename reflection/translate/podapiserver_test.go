// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"testing"

	"github.com/liqo-go/liqo/reflection/translate"
)

// TestClusterDomain: a kubelet writes the cluster's domain behind the namespace, and the node's own
// domains after it.
func TestClusterDomain(t *testing.T) {
	for conf, want := range map[string]string{
		"search liqo.svc.cluster.local svc.cluster.local cluster.local example.com\nnameserver 10.96.0.10\noptions ndots:5\n": "cluster.local",
		"nameserver 10.96.0.10\nsearch liqo.svc.rome.example. svc.rome.example. rome.example.\n":                              "rome.example",
		"# search a.svc.b svc.b b\nnameserver 192.0.2.1\nsearch example.com\n":                                                "",
		"nameserver 192.0.2.1": "",
		"search\n":             "",
		"":                     "",
	} {
		if got := translate.ClusterDomain(conf); got != want {
			t.Errorf("%q: %q, want %q", conf, got, want)
		}
	}
}
