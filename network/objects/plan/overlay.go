// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"iter"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// overlayPart is the share of the internal CIDR from which one controller assigns addresses. Each
// share has one controller, so two of them never assign the same address at the same time.
//
//	0              1/2            3/4           1
//	|    nodes      |   servers    |   clients   |
type overlayPart int

const (
	overlayNodes overlayPart = iota
	overlayServers
	overlayClients
)

// reasonInternalCIDRFull is reported when the internal CIDR has no free address. retryFullCIDR is the
// interval of retries: a freed address causes no event.
const (
	reasonInternalCIDRFull = "InternalCIDRFull"
	retryFullCIDR          = time.Minute
)

// overlayAddress keeps the current address if it lies in the internal CIDR and no other object has
// it. Otherwise it assigns the lowest free one of the part. The first and the last address of the
// CIDR are never assigned: they are the link's network and broadcast addresses.
func overlayAddress(cidr netip.Prefix, part overlayPart, current string, used []netip.Addr) (netip.Addr, bool) {
	if keeps(cidr, current, used) {
		return netip.MustParseAddr(current), true
	}
	nodes, gateways, ok := halves(cidr)
	if !ok {
		return netip.Addr{}, false
	}
	servers, clients, ok := halves(gateways)
	if !ok {
		return netip.Addr{}, false
	}
	used = append(slices.Clone(used), kernel.First(cidr), kernel.Last(cidr))
	return freeAddress([]netip.Prefix{nodes, servers, clients}[part], 0, 0, used)
}

// Overlay holds the addresses in the overlay.
type Overlay struct {
	Fabrics []netv1beta1.InternalFabric
	Nodes   []netv1beta1.InternalNode
	// Late holds further addresses by FabricOf or NodeOf: they are assigned, but Fabrics and Nodes may not
	// hold their objects yet.
	Late map[corev1.ObjectReference]string
}

// Shown iterates over the addresses in Fabrics and Nodes, as text that is not validated.
func (o Overlay) Shown() iter.Seq2[corev1.ObjectReference, string] {
	return func(yield func(corev1.ObjectReference, string) bool) {
		for i := range o.Fabrics {
			if f := &o.Fabrics[i]; !yield(FabricOf(f), f.Spec.Interface.Gateway.IP) {
				return
			}
		}
		for i := range o.Nodes {
			if n := &o.Nodes[i]; !yield(NodeOf(n), n.Spec.Interface.Node.IP) {
				return
			}
		}
	}
}

// inUse returns the overlay address of one object and those of all others.
func (o Overlay) inUse(self corev1.ObjectReference) (string, []netip.Addr) {
	var current string
	var used []netip.Addr
	note := func(holder corev1.ObjectReference, address string) {
		if holder == self {
			current = address
		} else if a, err := netip.ParseAddr(address); err == nil {
			used = append(used, a)
		}
	}
	for holder, address := range o.Shown() {
		note(holder, address)
	}
	for holder, address := range o.Late {
		note(holder, address)
	}
	return current, used
}

// address returns the overlay address of an object: its current one, else a free one of the part. If
// there is none it returns a plan with the reason, which is Ready otherwise.
func (o Overlay) address(
	self corev1.ObjectReference, part overlayPart, networks []ipamv1alpha1.Network, liqoNamespace string,
) (netip.Addr, desired.Plan) {
	cidr, ok := grantedTo(networks, liqoNamespace, api.NetworkInternalCIDR)
	if !ok {
		return netip.Addr{}, desired.Wait("InternalCIDRPending", "Network %s/%s has no CIDR yet; see its conditions",
			liqoNamespace, api.NetworkInternalCIDR)
	}
	current, used := o.inUse(self)
	addr, ok := overlayAddress(cidr, part, current, used)
	if !ok {
		return netip.Addr{}, desired.Block(reasonInternalCIDRFull,
			"the internal CIDR %s has no free address left; install with a larger value ipam.internalCIDR", cidr)
	}
	return addr, desired.Plan{}
}

// Keeps reports whether an object keeps its address. Otherwise it is assigned one, and the caller
// must know the last one assigned: a stale cache is not sufficient.
func (o Overlay) Keeps(self corev1.ObjectReference, networks []ipamv1alpha1.Network, liqoNamespace string) bool {
	cidr, granted := grantedTo(networks, liqoNamespace, api.NetworkInternalCIDR)
	current, used := o.inUse(self)
	return granted && keeps(cidr, current, used)
}

func keeps(cidr netip.Prefix, current string, used []netip.Addr) bool {
	a, err := netip.ParseAddr(current)
	return err == nil && cidr.Contains(a) && !slices.Contains(used, a)
}

// FabricOf refers to the object that holds the overlay address of a gateway.
func FabricOf(gateway desired.Object) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "InternalFabric", Namespace: gateway.GetNamespace(), Name: gateway.GetName()}
}

// NodeOf refers to the object that holds the overlay address of a node.
func NodeOf(node desired.Object) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "InternalNode", Name: node.GetName()}
}

// grantedTo returns the CIDR granted to this cluster's Network of one type.
func grantedTo(networks []ipamv1alpha1.Network, liqoNamespace, networkType string) (netip.Prefix, bool) {
	for i := range networks {
		n := &networks[i]
		if n.Namespace != liqoNamespace || !ofType(n, networkType) {
			continue
		}
		if p, err := netip.ParsePrefix(n.Status.CIDR); err == nil {
			return p.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

// NodeInput holds the input of InternalNode.
type NodeInput struct {
	Root *corev1.Node
	// Networks are all Networks of the cluster, including that of the internal CIDR.
	Networks []ipamv1alpha1.Network
	// Overlay is no older than the last assigned address, unless the node keeps its own.
	Overlay
	// LiqoNamespace holds the internal CIDR's Network.
	LiqoNamespace string
	// Pods are all pods of the cluster, or only those of the node if its ranges do not contain all
	// of them.
	Pods []corev1.Pod
	// ProtectedNamespaces are the namespaces, in addition to LiqoNamespace, whose pods no peer
	// reaches.
	ProtectedNamespaces []string
	// Uninstalling deletes the InternalNodes.
	Uninstalling bool
}

// InternalNode plans a node's membership in the overlay: its address, which it keeps, the CIDRs of
// its pods, and the pods that gateways protect from peers. Virtual nodes have no InternalNode.
func InternalNode(in NodeInput) desired.Plan {
	node := in.Root
	if node.DeletionTimestamp != nil || in.Uninstalling || node.Labels[api.LabelType] == api.TypeVirtualNode {
		return desired.Plan{}
	}
	addr, pending := in.Overlay.address(NodeOf(node), overlayNodes, in.Networks, in.LiqoNamespace)
	if pending.Reason == reasonInternalCIDRFull {
		pending.RequeueAfter = retryFullCIDR
	}
	if pending.State != desired.Ready {
		return pending
	}
	return desired.Plan{Objects: []desired.Object{&netv1beta1.InternalNode{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name},
		Spec: netv1beta1.InternalNodeSpec{
			PodCIDRs: podRanges(node, in.Pods), ProtectedIPs: in.protectedIPs(),
			Interface: netv1beta1.InternalNodeInterface{
				Gateway: netv1beta1.InternalNodeGatewayInterface{Name: api.OverlayInterface},
				Node:    netv1beta1.InternalNodeNodeInterface{IP: addr.String()},
			},
		},
	}}}
}

// NodeAddressInput holds the input of NodeAddress.
type NodeAddressInput struct {
	Root *netv1beta1.InternalNode
	// Node is the node of that name; nil when it is gone.
	Node *corev1.Node
}

// NodeAddress reports the outer address of a node in the overlay to gateways. An overlay on top of
// the pod network needs one address for all gateways. Its family is that of the first pod range, as
// for addresses of gateways.
func NodeAddress(in NodeAddressInput) desired.Plan {
	if in.Root.DeletionTimestamp != nil {
		return desired.Plan{}
	}
	if in.Node == nil {
		return desired.Wait("NodeMissing", "there is no Node %s; its InternalNode is about to go", in.Root.Name)
	}
	addrs := nodeAddresses(in.Node, corev1.NodeInternalIP)
	if pods, err := netip.ParsePrefix(in.Node.Spec.PodCIDR); err == nil {
		slices.SortStableFunc(addrs, func(a, b string) int { return otherFamily(a, pods) - otherFamily(b, pods) })
	}
	if len(addrs) == 0 {
		return desired.Wait("NodeAddressMissing", "Node %s has no internal IP; see its status.addresses", in.Root.Name)
	}
	return desired.Plan{Status: &netv1beta1.InternalNode{Status: netv1beta1.InternalNodeStatus{
		NodeIP: netv1beta1.NodeIP{Local: addrs[0], Remote: addrs[0]},
	}}}
}

// otherFamily returns 0 for an address of a range's family, else 1.
func otherFamily(address string, p netip.Prefix) int {
	if a, err := netip.ParseAddr(address); err == nil && a.Is4() == p.Addr().Is4() {
		return 0
	}
	return 1
}

// nodeAddresses returns a node's addresses of one type, in the order of its status.
func nodeAddresses(node *corev1.Node, t corev1.NodeAddressType) []string {
	var list []string
	for _, a := range node.Status.Addresses {
		if a.Type == t {
			list = append(list, a.Address)
		}
	}
	return list
}
