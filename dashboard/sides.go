// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import "github.com/liqo-go/liqo/view"

// side holds the peers that the map draws on one side of the cluster. ID is the class of its
// section and the ID of its heading.
type side struct {
	ID, Title string
	Peers     []view.MapPeer
	// More is how many peers are left out.
	More int
}

// maxDrawn bounds the peers that one side of the map draws. Broken ones come first, and all follow below the drawing.
const maxDrawn = 8

// sides returns what the map draws: on the left peers whose pods run here, on the right those that run pods of this
// cluster, which may do both, and those without a role.
func sides(peers []view.MapPeer) map[string]*side {
	left, right := &side{ID: "consumers", Title: "Consumers"}, &side{ID: "providers", Title: "Providers"}
	for i := range peers {
		p := &peers[i]
		to := right
		if p.IsConsumer() && !p.IsProvider() {
			to = left
		} else if !p.IsProvider() {
			right.Title = "Providers and others"
		}
		if len(to.Peers) < maxDrawn {
			to.Peers = append(to.Peers, *p)
		} else {
			to.More++
		}
	}
	return map[string]*side{"left": left, "right": right}
}
