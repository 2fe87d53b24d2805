// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import "testing"

// TestFirst runs what a user does first, on clusters of its own, and is the only story of 'make test'.
func TestFirst(t *testing.T) {
	tellEach(t, []stage{
		{nothing, installed, []story{{"install", install}}},
		{installed, peered, []story{{"peer", peerFirst}}},
		{peered, offloaded, []story{{"a namespace is offloaded", offloadNamespace}}},
		{offloaded, offloaded, []story{
			{"kubectl works through the virtual node", throughTheVirtualNode},
			{"a service answers from both sides to both sides", serviceOnBothSides},
		}},
		{offloaded, installed, []story{{"unpeer leaves nothing", unpeer}}},
		{installed, nothing, []story{{"uninstall leaves nothing", uninstall}}},
	})
}
