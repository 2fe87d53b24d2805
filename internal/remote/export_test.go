// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import "k8s.io/client-go/rest"

// Credentials returns the current configuration.
func (p *Peer) Credentials() *rest.Config { return p.current.Load().config }
