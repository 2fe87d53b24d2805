// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// assigned holds the addresses in the overlay that one controller assigned and the cache may not show
// yet. The controller has one worker and its own part of the addresses, so the cache and these together
// are complete. Otherwise the controller would have to list thousands of objects from the API server for
// each new gateway. The zero value is ready to use.
type assigned struct {
	late map[corev1.ObjectReference]string
	// caughtUp reports whether the cache shows all addresses that the API server knew when it was last
	// asked.
	caughtUp bool
}

// maxLate is the number of addresses in late from which the API server is asked again. The cache rarely
// lags by so many. An address stays in late if its object was deleted before the cache showed it, or was
// never created.
const maxLate = 100

// overlay reads the addresses in the overlay. They include the last assigned one, unless self keeps its
// address.
func (a *assigned) overlay(ctx context.Context, r ctl.Reader, self corev1.ObjectReference,
	networks []ipamv1alpha1.Network, liqoNamespace string) (plan.Overlay, error) {
	known, err := readOverlay(ctx, r)
	if err != nil {
		return known, err
	}
	for holder, address := range known.Shown() {
		if a.late[holder] == address {
			delete(a.late, holder)
		}
	}
	known.Late = a.late
	if a.caughtUp && len(a.late) < maxLate || known.Keeps(self, networks, liqoNamespace) {
		return known, nil
	}
	live, err := readOverlay(ctx, r.Live)
	if err != nil {
		return live, err
	}
	shown := map[corev1.ObjectReference]string{}
	for holder, address := range known.Shown() {
		shown[holder] = address
	}
	clear(a.late)
	a.caughtUp = true
	for holder, address := range live.Shown() {
		a.caughtUp = a.caughtUp && shown[holder] == address
	}
	return live, nil
}

// record adds the addresses that a plan assigns to late, before the plan is applied.
func (a *assigned) record(p desired.Plan) desired.Plan {
	planned := plan.Overlay{}
	for _, obj := range p.Objects {
		switch x := obj.(type) {
		case *netv1beta1.InternalFabric:
			planned.Fabrics = append(planned.Fabrics, *x)
		case *netv1beta1.InternalNode:
			planned.Nodes = append(planned.Nodes, *x)
		}
	}
	if a.late == nil {
		a.late = map[corev1.ObjectReference]string{}
	}
	for holder, address := range planned.Shown() {
		a.late[holder] = address
	}
	return p
}

func readOverlay(ctx context.Context, r client.Reader) (plan.Overlay, error) {
	var fabrics netv1beta1.InternalFabricList
	if err := list(ctx, r, &fabrics, client.UnsafeDisableDeepCopy); err != nil {
		return plan.Overlay{}, err
	}
	var nodes netv1beta1.InternalNodeList
	err := list(ctx, r, &nodes, client.UnsafeDisableDeepCopy)
	return plan.Overlay{Fabrics: fabrics.Items, Nodes: nodes.Items}, err
}
