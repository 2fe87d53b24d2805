// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	"github.com/liqo-go/liqo/internal/desired"
)

// IPInput holds the input of IP.
type IPInput struct {
	Root *ipamv1alpha1.IP
	// IPs are all IPs of the cluster, including the root, no older than the last grant.
	IPs []ipamv1alpha1.IP
	// Networks are all Networks of the cluster.
	Networks []ipamv1alpha1.Network
	// LiqoNamespace holds the Network of the external CIDR, from which addresses are taken
	// unless the IP names another Network.
	LiqoNamespace string
}

// IP grants an address of a Network, which never changes afterwards, and plans the Service of a
// template.
func IP(in IPInput) desired.Plan {
	root := in.Root
	if root.DeletionTimestamp != nil {
		return desired.Plan{}
	}
	target, err := netip.ParseAddr(root.Spec.IP)
	if err != nil {
		return desired.Block("InvalidIP", "%q is not an IP address; create the IP again with one", root.Spec.IP)
	}
	if overlay, ok := grantedTo(in.Networks, in.LiqoNamespace, api.NetworkInternalCIDR); ok &&
		overlay.Contains(target.Unmap()) {
		return desired.Block("InternalIP", "%s is in the internal CIDR %s, where only nodes and gateways are; create "+
			"the IP again with another address of what peers are to reach", target, overlay)
	}
	network := in.network()
	plan := in.grant(network, target)
	plan.ProblemsOnly = OfPod(root)
	if network != nil {
		plan.Fill = in.labelled(network)
	}
	granted := root.Status.IP
	if status, ok := plan.Status.(*ipamv1alpha1.IP); ok {
		granted = status.Status.IP
	}
	if granted != "" && root.Spec.ServiceTemplate != nil {
		plan.Objects = serviceFor(root, target)
	}
	return plan
}

// grant chooses the address; an IP that has one keeps it. The search begins at an offset from the
// UID, not at the lowest address. Peers may still know the address of a deleted IP, and must not
// reach another target by it.
func (in IPInput) grant(network *ipamv1alpha1.Network, target netip.Addr) desired.Plan {
	if in.Root.Status.IP != "" {
		return desired.Plan{}
	}
	if network == nil {
		return desired.Wait("NetworkMissing", "there is no Network %s; create it", in.networkName())
	}
	cidr, err := netip.ParsePrefix(network.Status.CIDR)
	if err != nil {
		return desired.Wait("NetworkNotGranted", "Network %s has no CIDR yet; see its conditions", in.networkName())
	}
	if cidr.Addr().Is4() != target.Is4() {
		return desired.Block("OtherFamily", "%s and %s are of different address families; name a Network of the same "+
			"family in networkRef", target, cidr)
	}
	var used []netip.Addr
	for i := range in.IPs {
		if a, err := netip.ParseAddr(in.IPs[i].Status.IP); err == nil {
			used = append(used, a)
		}
	}
	digest := sha256.Sum256([]byte(in.Root.UID))
	addr, ok := freeAddress(cidr, uint64(max(network.Spec.PreAllocated, 0)), binary.BigEndian.Uint64(digest[:]), used)
	if !ok {
		return desired.Block("NetworkFull", "Network %s has no free address left; delete IPs that are not needed",
			in.networkName())
	}
	return desired.Plan{Status: &ipamv1alpha1.IP{Status: ipamv1alpha1.IPStatus{IP: addr.String(), CIDR: cidr.String()}}}
}

// network returns the Network the address is taken from; nil when it does not exist.
func (in IPInput) network() *ipamv1alpha1.Network {
	want := in.networkName()
	for i := range in.Networks {
		if n := &in.Networks[i]; n.Namespace+"/"+n.Name == want {
			return n
		}
	}
	return nil
}

// networkName returns namespace/name of that Network; a reference without a namespace means the
// IP's own.
func (in IPInput) networkName() string {
	ref := in.Root.Spec.NetworkRef
	if ref == nil || ref.Name == "" {
		return in.LiqoNamespace + "/" + api.NetworkExternalCIDR
	}
	return cmp.Or(ref.Namespace, in.Root.Namespace) + "/" + ref.Name
}

// labelled returns the root with the labels of the Network it takes its address from.
func (in IPInput) labelled(network *ipamv1alpha1.Network) *ipamv1alpha1.IP {
	out := in.Root.DeepCopy()
	out.Labels = labels.Merge(out.Labels, map[string]string{
		api.LabelNetworkName:      api.LabelValue(network.Name),
		api.LabelNetworkNamespace: network.Namespace,
	})
	return out
}

// serviceFor returns the Service of an IP's template and its EndpointSlice. The EndpointSlice
// points to the target, because no local endpoint has the granted address; where it is reflected,
// peers use the granted one. The Service has no selector, so nothing else fills its endpoints.
func serviceFor(root *ipamv1alpha1.IP, target netip.Addr) []desired.Object {
	template := root.Spec.ServiceTemplate
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: root.Name, Namespace: root.Namespace,
			Labels: template.Labels, Annotations: template.Annotations,
		},
		Spec: *template.Spec.DeepCopy(),
	}
	service.Spec.Selector = nil
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: root.Name, Namespace: root.Namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: root.Name,
				discoveryv1.LabelManagedBy: "ip.ipam.liqo.io"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{target.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)}}},
	}
	if target.Is6() {
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	for _, p := range service.Spec.Ports {
		slice.Ports = append(slice.Ports, endpointPort(p))
	}
	return []desired.Object{service, slice}
}

// endpointPort returns the port that a Service port forwards to: its target port if that is a
// number.
func endpointPort(p corev1.ServicePort) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{
		Name:        new(p.Name),
		Port:        new(cmp.Or(p.TargetPort.IntVal, p.Port)),
		Protocol:    new(cmp.Or(p.Protocol, corev1.ProtocolTCP)),
		AppProtocol: p.AppProtocol,
	}
}
