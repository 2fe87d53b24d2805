// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides for the network's controllers: it grants CIDRs and addresses, renders gateways
// from templates, and assigns addresses in the overlay to nodes and gateways. It reads and writes
// nothing; package network gathers its inputs. The states of kernels that follow from these objects
// are decided in network/plan.
package plan

import (
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	"github.com/liqo-go/liqo/internal/desired"
)

// ReasonRangeConflict is reported on a Network and its Configuration. This cluster now depends on
// an address in a range that a peer is remapped to. Delete the Network to remap the peer to another
// range.
const ReasonRangeConflict = "RangeConflict"

// NetworkInput holds the input of Network.
type NetworkInput struct {
	Root *ipamv1alpha1.Network
	// Networks are all Networks of the cluster, including the root. They are no older than the last
	// grant: two grants from the same observation could overlap.
	Networks []ipamv1alpha1.Network
	// Pools are the ranges that remapped CIDRs are taken from, in order of preference.
	Pools []netip.Prefix
	// Local are the addresses this cluster depends on: of its nodes, their default gateways and DNS
	// servers. Unless the root has a grant, those of its API server and its DNS Service are
	// included. Addresses of devices have the prefix length of their network. A peer's CIDR that
	// overlaps one is remapped: granting it would send this cluster's own traffic into the tunnel.
	Local []netip.Prefix
}

// Network grants a CIDR, which never changes afterwards.
//
//	class                  inside the pools            outside the pools
//	not remapped, shared   the wished CIDR             the wished CIDR
//	not remapped           the wished CIDR             blocked
//	remapped               another of the same length  another of the same length
//	any other              the wished CIDR when free,  another of the same length
//	                       else another
//
// Networks overlap no other, but those labelled shared may overlap each other.
func Network(in NetworkInput) desired.Plan {
	root := in.Root
	if root.DeletionTimestamp != nil {
		return desired.Plan{}
	}
	if root.Status.CIDR != "" {
		return in.holds()
	}
	wish, err := netip.ParsePrefix(root.Spec.CIDR)
	if err != nil {
		return desired.Block("InvalidCIDR", "%q is not a CIDR; create the Network again with one like 10.20.0.0/16",
			root.Spec.CIDR)
	}
	wish = wish.Masked()
	if isNotRemapped(root) {
		return in.grantExact(wish)
	}
	taken := in.local()
	for _, o := range in.obstacles() {
		taken = append(taken, o.prefix)
	}
	if root.Labels[api.LabelNetworkRemapped] == "true" {
		taken, wish = append(taken, wish), in.elsewhere(wish)
	}
	if inPool(wish, in.Pools) && !slices.ContainsFunc(taken, wish.Overlaps) {
		return in.grantCIDR(wish)
	}
	if block, ok := freeBlock(wish, in.Pools, taken); ok {
		return in.grantCIDR(block)
	}
	return desired.Block("PoolsExhausted", "no free block of length /%d is left for %s; add a pool to the value "+
		"ipam.pools, or let the peer announce smaller CIDRs", wish.Bits(), root.Spec.CIDR)
}

// local returns the networks the root must not overlap because this cluster depends on them. The
// root's CIDRs may lie in a network that nodes are connected to, but contain none of their
// addresses.
func (in NetworkInput) local() []netip.Prefix {
	out := make([]netip.Prefix, len(in.Local))
	for i, p := range in.Local {
		if out[i] = p.Masked(); !ofPeer(in.Root) {
			out[i] = netip.PrefixFrom(p.Addr(), p.Addr().BitLen())
		}
	}
	return out
}

// elsewhere returns where the search for a block in place of wish starts: at this cluster's
// external CIDR, upwards. If it started near wish, the peer would choose the range it is remapped
// to.
func (in NetworkInput) elsewhere(wish netip.Prefix) netip.Prefix {
	for i := range in.Networks {
		n := &in.Networks[i]
		p, err := netip.ParsePrefix(n.Status.CIDR)
		if err == nil && ofType(n, api.NetworkExternalCIDR) && !ofPeer(n) && p.Addr().Is4() == wish.Addr().Is4() {
			return netip.PrefixFrom(p.Addr(), wish.Bits()).Masked()
		}
	}
	return wish
}

// ofPeer reports whether a Network is a CIDR of a peer.
func ofPeer(n *ipamv1alpha1.Network) bool { return n.Labels[api.LabelRemoteClusterID] != "" }

// holds plans a Network whose grant contains an address that this cluster now depends on. The grant
// stays, because connections use it, but nodes route packets for that address past the tunnel.
func (in NetworkInput) holds() desired.Plan {
	granted, err := netip.ParsePrefix(in.Root.Status.CIDR)
	if err != nil || !ofPeer(in.Root) {
		return desired.Plan{} // nodes may have addresses of this cluster's own CIDRs
	}
	for _, p := range in.Local {
		if granted.Contains(p.Addr()) {
			return desired.Block(ReasonRangeConflict,
				"the peer is seen at %s, where this cluster has the address %s now: nodes keep what is for that "+
					"address off the tunnel, so the peer's pod there is not reached; delete this Network, and it "+
					"comes back with another CIDR", granted, p.Addr())
		}
	}
	return desired.Plan{}
}

// grantExact grants the requested CIDR or nothing.
func (in NetworkInput) grantExact(wish netip.Prefix) desired.Plan {
	if !isShared(in.Root) && !inPool(wish, in.Pools) {
		return desired.Block("OutsidePools", "%s must not be remapped but lies in no pool; add a pool to the value "+
			"ipam.pools or label the Network %s=true", wish, api.LabelNetworkShared)
	}
	for _, o := range in.obstacles() {
		if o.prefix.Overlaps(wish) {
			return desired.Block("CIDRTaken",
				"%s must not be remapped but overlaps %s of Network %s; delete one of the two", wish, o.prefix, o.owner)
		}
	}
	return in.grantCIDR(wish)
}

// grantCIDR grants a CIDR. If it is the range of a peer, an event reports where the peer is
// remapped to.
func (in NetworkInput) grantCIDR(p netip.Prefix) desired.Plan {
	plan := desired.Plan{Status: &ipamv1alpha1.Network{Status: ipamv1alpha1.NetworkStatus{CIDR: p.String()}}}
	if peer := in.Root.Labels[api.LabelRemoteClusterID]; peer != "" {
		plan.Events = []desired.Event{{Reason: "CIDRGranted", Message: fmt.Sprintf(
			"%s of cluster %q is seen here at %s, until this Network is deleted", in.Root.Spec.CIDR, peer, p)}}
	}
	return plan
}

// obstacle is address space a Network holds or is about to hold.
type obstacle struct {
	prefix netip.Prefix
	owner  string
}

// obstacles returns the ranges the root must not overlap: those granted, and those that a Network
// served earlier will be granted.
func (in NetworkInput) obstacles() []obstacle {
	var list []obstacle
	for i := range in.Networks {
		n := &in.Networks[i]
		if sameKey(n, in.Root) || isShared(n) && isShared(in.Root) {
			continue
		}
		cidr := n.Status.CIDR
		if cidr == "" && precedes(n, in.Root) {
			cidr = n.Spec.CIDR
		}
		if p, err := netip.ParsePrefix(cidr); err == nil {
			list = append(list, obstacle{p.Masked(), n.Namespace + "/" + n.Name})
		}
	}
	return list
}

// precedes reports whether n, which has no grant yet, is served before root. Networks that cannot
// be remapped come first, then those of the installation; remappable ones do not delay each other.
func precedes(n, root *ipamv1alpha1.Network) bool {
	if n.DeletionTimestamp != nil || rank(n) == 0 {
		return false
	}
	return rank(n) > rank(root) || rank(n) == rank(root) && api.Older(n, root)
}

func rank(n *ipamv1alpha1.Network) int {
	switch {
	case isNotRemapped(n):
		return 2
	case n.Annotations[api.AnnotationPreinstalled] == "true":
		return 1
	}
	return 0
}

func isNotRemapped(n *ipamv1alpha1.Network) bool {
	return n.Labels[api.LabelNetworkNotRemapped] == "true"
}
func isShared(n *ipamv1alpha1.Network) bool { return n.Labels[api.LabelNetworkShared] == "true" }

func inPool(p netip.Prefix, pools []netip.Prefix) bool {
	return slices.ContainsFunc(pools, func(pool netip.Prefix) bool { return covers(pool, p) })
}

// sameKey reports whether two objects of one kind have the same namespace and name.
func sameKey(a, b metav1.Object) bool {
	return a.GetNamespace() == b.GetNamespace() && a.GetName() == b.GetName()
}
