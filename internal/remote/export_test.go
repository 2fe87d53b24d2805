// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import "k8s.io/client-go/rest"

// Credentials returns the configuration of the current kubeconfig, which has been parsed before.
func (p *Peer) Credentials() *rest.Config {
	config, _ := parse(p.current.Load().kubeconfig)
	return config
}
