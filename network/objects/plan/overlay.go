// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
)

// overlayPart is the share of the internal CIDR one controller gives addresses from. Each share
// has one giver, so no two of them can give the same address at the same time.
//
//	0              1/2            3/4           1
//	|    nodes      |   servers    |   clients   |
type overlayPart int

const (
	overlayNodes overlayPart = iota
	overlayServers
	overlayClients
)

// overlayAddress keeps the current address when it lies in the internal CIDR and nobody else has
// it, else gives the lowest free one of the part. The first and the last address of the CIDR are
// never given: on a link of this prefix they mean the network and everyone on it.
func overlayAddress(cidr netip.Prefix, part overlayPart, current string, used []netip.Addr) (netip.Addr, bool) {
	if a, err := netip.ParseAddr(current); err == nil && cidr.Contains(a) && !slices.Contains(used, a) {
		return a, true
	}
	nodes, gateways, ok := halves(cidr)
	if !ok {
		return netip.Addr{}, false
	}
	servers, clients, ok := halves(gateways)
	if !ok {
		return netip.Addr{}, false
	}
	used = append(slices.Clone(used), first(cidr), last(cidr))
	return freeAddress([]netip.Prefix{nodes, servers, clients}[part], 0, used)
}

// overlayInUse returns the overlay address of the object self describes and those of all others.
func overlayInUse(fabrics []netv1beta1.InternalFabric, nodes []netv1beta1.InternalNode, self func(kind, namespace, name string) bool) (string, []netip.Addr) {
	var current string
	var used []netip.Addr
	note := func(kind, namespace, name, address string) {
		if self(kind, namespace, name) {
			current = address
		} else if a, err := netip.ParseAddr(address); err == nil {
			used = append(used, a)
		}
	}
	for i := range fabrics {
		note("InternalFabric", fabrics[i].Namespace, fabrics[i].Name, fabrics[i].Spec.Interface.Gateway.IP)
	}
	for i := range nodes {
		note("InternalNode", "", nodes[i].Name, nodes[i].Spec.Interface.Node.IP)
	}
	return current, used
}

// grantedTo is the CIDR granted to this cluster's Network of one type.
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

// NodeInput is what decides the InternalNode of a Node.
type NodeInput struct {
	Root *corev1.Node
	// Networks are all of the cluster: the internal CIDR is among them.
	Networks []ipamv1alpha1.Network
	// Fabrics and Nodes hold the overlay addresses in use, no older than the last one given.
	Fabrics []netv1beta1.InternalFabric
	Nodes   []netv1beta1.InternalNode
	// LiqoNamespace holds the internal CIDR's Network.
	LiqoNamespace string
	// Pods are all of the cluster.
	Pods []corev1.Pod
	// Uninstalling takes the InternalNodes away.
	Uninstalling bool
}

// InternalNode plans a node's place in the overlay: its address there, which it keeps, and the
// CIDRs of its pods. Virtual nodes have none.
func InternalNode(in NodeInput) ctl.Plan {
	node := in.Root
	if node.DeletionTimestamp != nil || in.Uninstalling || node.Labels[api.LabelType] == api.TypeVirtualNode {
		return ctl.Plan{}
	}
	cidr, ok := grantedTo(in.Networks, in.LiqoNamespace, api.NetworkInternalCIDR)
	if !ok {
		return ctl.Wait("InternalCIDRPending", "Network %s/%s has no CIDR yet; see its conditions", in.LiqoNamespace, api.NetworkInternalCIDR)
	}
	current, used := overlayInUse(in.Fabrics, in.Nodes, func(kind, _, name string) bool {
		return kind == "InternalNode" && name == node.Name
	})
	addr, ok := overlayAddress(cidr, overlayNodes, current, used)
	if !ok {
		return ctl.Block("InternalCIDRFull", "the internal CIDR %s has no free address left; install with a larger value ipam.internalCIDR", cidr)
	}
	return ctl.Plan{Objects: []client.Object{&netv1beta1.InternalNode{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name},
		Spec: netv1beta1.InternalNodeSpec{
			PodCIDRs: podRanges(node, in.Pods),
			Interface: netv1beta1.InternalNodeInterface{
				Gateway: netv1beta1.InternalNodeGatewayInterface{Name: api.OverlayInterface},
				Node:    netv1beta1.InternalNodeNodeInterface{IP: addr.String()},
			},
		},
	}}}
}

// NodeAddressInput is what decides the status of an InternalNode.
type NodeAddressInput struct {
	Root *netv1beta1.InternalNode
	// Node is the node of that name; nil when it is gone.
	Node *corev1.Node
}

// NodeAddress tells gateways the outer address of a node in the overlay. An overlay on top of the
// pod network needs one address for gateways near and far.
func NodeAddress(in NodeAddressInput) ctl.Plan {
	if in.Root.DeletionTimestamp != nil {
		return ctl.Plan{}
	}
	if in.Node == nil {
		return ctl.Wait("NodeMissing", "there is no Node %s; its InternalNode is about to go", in.Root.Name)
	}
	addrs := nodeAddresses(in.Node, corev1.NodeInternalIP)
	if len(addrs) == 0 {
		return ctl.Wait("NodeAddressMissing", "Node %s has no internal IP; see its status.addresses", in.Root.Name)
	}
	return ctl.Plan{Status: &netv1beta1.InternalNode{Status: netv1beta1.InternalNodeStatus{
		NodeIP: netv1beta1.NodeIP{Local: addrs[0], Remote: addrs[0]},
	}}}
}

// nodeAddresses are a node's addresses of one type, in the order the node tells them.
func nodeAddresses(node *corev1.Node, t corev1.NodeAddressType) []string {
	var list []string
	for _, a := range node.Status.Addresses {
		if a.Type == t {
			list = append(list, a.Address)
		}
	}
	return list
}
