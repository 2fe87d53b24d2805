// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import "testing"

// TestFirst runs what a user does first, on clusters of its own, and is the only story of 'make test'.
func TestFirst(t *testing.T) {
	tellAll(t, []story{
		{"install", install},
		{"peer", peerFirst},
		{"a namespace is offloaded", offloadNamespace},
		{"kubectl works through the virtual node", throughTheVirtualNode},
		{"a service answers from both sides to both sides", serviceOnBothSides},
		{"unpeer leaves nothing", unpeer},
		{"uninstall leaves nothing", uninstall},
	})
}
