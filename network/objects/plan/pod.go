// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// PodIPInput holds the input of PodIP.
type PodIPInput struct {
	Root *corev1.Pod
	// IP is the current one; nil = there is none.
	IP *ipamv1alpha1.IP
	// Provider is the peer at which the pod runs; empty while its virtual node does not exist.
	Provider string
	// Configurations are those of all peers.
	Configurations []netv1beta1.Configuration
	// LiqoNamespace holds the Network the address is taken from.
	LiqoNamespace string
}

// OfPod reports whether an IP belongs to a pod.
func OfPod(ip *ipamv1alpha1.IP) bool { return ip.Labels[api.LabelPodNamespace] != "" }

// Offloaded reports whether a pod of this cluster runs at a provider.
func Offloaded(pod *corev1.Pod) bool { return pod.Labels[api.LabelShadowPod] == api.True }

// PodIP gives a pod that runs at one peer an address of this cluster, by which other peers reach
// it. With a single peer no other would use it, so no object is made. The provider reports the
// pod's address. It must lie in the provider's pod ranges, or others would reach any address it
// names.
func PodIP(in PodIPInput) desired.Plan {
	pod, ranges := in.Root, in.providerPods()
	addr, err := netip.ParseAddr(pod.Status.PodIP)
	switch {
	case pod.DeletionTimestamp != nil || pod.Status.PodIP == "" || api.Finished(pod.Status.Phase):
		return desired.Plan{}
	case len(in.Configurations) < 2:
		return desired.Wait("OnePeer", "no other peer could use an address of the pod")
	case len(ranges) == 0:
		return desired.Wait("RangesUnknown", "this cluster does not know by which ranges it reaches the pods of the "+
			"provider")
	case err != nil || !netv1beta1.ParseRanges(ranges...).Contains(addr):
		return desired.Plan{}
	case in.IP != nil && in.IP.Spec.IP != pod.Status.PodIP:
		return desired.Plan{} // spec.ip never changes, so the old IP is deleted first
	}
	labels := map[string]string{
		api.LabelPodName: pod.Name, api.LabelPodNamespace: pod.Namespace,
		// the same labels as the grant sets
		api.LabelNetworkName: api.NetworkExternalCIDR, api.LabelNetworkNamespace: in.LiqoNamespace,
	}
	if len(pod.Name) > validation.LabelValueMaxLength {
		delete(labels, api.LabelPodName) // the IP has the pod's name
	}
	return desired.Plan{Objects: []desired.Object{&ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, Labels: labels},
		Spec:       ipamv1alpha1.IPSpec{IP: pod.Status.PodIP},
	}}}
}

// providerPods returns the ranges that the provider's pods are remapped to; none while they are not
// known.
func (in PodIPInput) providerPods() []string {
	for _, c := range in.Configurations {
		if in.Provider != "" && c.Labels[api.LabelRemoteClusterID] == in.Provider && c.Status.Remote != nil {
			return c.Status.Remote.CIDR.Pod
		}
	}
	return nil
}

// podAddresses returns the addresses a pod has in the pod network, if any.
func podAddresses(pod *corev1.Pod) []netip.Addr {
	if pod.Spec.HostNetwork || Offloaded(pod) || api.Finished(pod.Status.Phase) {
		return nil
	}
	var addrs []netip.Addr
	for _, ip := range pod.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// nodeRanges returns the pod ranges in a node's spec.
func nodeRanges(node *corev1.Node) []string {
	if len(node.Spec.PodCIDRs) == 0 && node.Spec.PodCIDR != "" {
		return []string{node.Spec.PodCIDR}
	}
	return node.Spec.PodCIDRs
}

// podRanges returns the ranges that contain the pods of a node. They are the node's own, if those
// contain all its pods and none of another node; else one address per pod. A CNI's own pools,
// shared by nodes or assigned in blocks, can be observed in no other way.
func podRanges(node *corev1.Node, pods []corev1.Pod) []string {
	cidrs, holds := nodeRanges(node), true
	ranges := netv1beta1.ParseRanges(cidrs...)
	var own []netip.Addr
	for i := range pods {
		here := pods[i].Spec.NodeName == node.Name
		for _, a := range podAddresses(&pods[i]) {
			if here {
				own = append(own, a)
			}
			holds = holds && ranges.Contains(a) == here
		}
	}
	if holds {
		return cidrs
	}
	slices.SortFunc(own, netip.Addr.Compare)
	var hosts []string
	for _, a := range slices.Compact(own) {
		hosts = append(hosts, netip.PrefixFrom(a, a.BitLen()).String())
	}
	return hosts
}

// Moved reports whether a pod was assigned another node, or has other addresses in the pod network.
func Moved(before, after *corev1.Pod) bool {
	return before.Spec.NodeName != after.Spec.NodeName || !slices.Equal(podAddresses(before), podAddresses(after))
}

// Holds reports whether a node's ranges contain all its pods. If not, they do not depend on pods of
// other nodes.
func Holds(node *corev1.Node, own []corev1.Pod) bool {
	return slices.Equal(podRanges(node, own), nodeRanges(node))
}

// IsProtected reports whether no peer may open a connection to a pod. It is in Liqo's namespace or
// in one that the chart names, or it is a gateway or virtual kubelet in a tenant namespace.
func IsProtected(pod *corev1.Pod, liqoNamespace string, namespaces []string) bool {
	return pod.Namespace == liqoNamespace || slices.Contains(namespaces, pod.Namespace) ||
		pod.Labels[api.LabelNetworkingComponent] == api.GatewayComponent ||
		pod.Labels[api.LabelOffloadingComponent] == api.VirtualKubeletComponent
}

// protectedIPs returns the addresses of the protected pods on the node.
func (in NodeInput) protectedIPs() []string {
	var addrs []netip.Addr
	for i := range in.Pods {
		if p := &in.Pods[i]; p.Spec.NodeName == in.Root.Name &&
			IsProtected(p, in.LiqoNamespace, in.ProtectedNamespaces) {
			addrs = append(addrs, podAddresses(p)...)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	var out []string
	for _, a := range slices.Compact(addrs) {
		out = append(out, a.String())
	}
	return out
}

// NodesOfPod returns the nodes whose podRanges or protectedIPs a change of the pod may change. These
// are its own node, if the pod is protected, or if some pod of the node lies outside the node's
// ranges, and other nodes whose ranges contain the pod.
func NodesOfPod(pod *corev1.Pod, protected bool, nodes []corev1.Node, known []netv1beta1.InternalNode) []string {
	addrs := podAddresses(pod)
	var names []string
	for i := range nodes {
		node := &nodes[i]
		here, cidrs := node.Name == pod.Spec.NodeName, nodeRanges(node)
		ranges := netv1beta1.ParseRanges(cidrs...)
		odd := slices.ContainsFunc(addrs, func(a netip.Addr) bool { return ranges.Contains(a) != here })
		if odd || here && protected || here && slices.ContainsFunc(known, func(n netv1beta1.InternalNode) bool {
			return n.Name == node.Name && !slices.Equal(n.Spec.PodCIDRs, cidrs)
		}) {
			names = append(names, node.Name)
		}
	}
	slices.SortFunc(names, cmp.Compare)
	return names
}
