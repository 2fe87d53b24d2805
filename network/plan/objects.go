// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"encoding/base64"
	"net/netip"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// publicKeyLength is the length of an X25519 key, in bytes.
const publicKeyLength = 32

// GatewayObjects are the objects a gateway reads. Objects being deleted count as gone. Fields that
// do not parse count as missing: the API server refuses them, or the controller reports them.
type GatewayObjects struct {
	// Gateway names the gateway; its InternalFabric has the same name.
	Gateway types.NamespacedName
	// Peer is the cluster ID of the gateway's peer.
	Peer string
	// Configurations are the peer's, in the gateway's namespace. The oldest is used, as in the
	// controllers. Those with a status come first, because controllers grant ranges to one only.
	Configurations []*netv1beta1.Configuration
	// Fabrics, Nodes and IPs hold all objects of the cluster.
	Fabrics []*netv1beta1.InternalFabric
	Nodes   []*netv1beta1.InternalNode
	IPs     []*ipamv1alpha1.IP
}

// Input adds the contents of the objects to the input that the process provides: the addresses of
// its pod and of the tunnel, its own key and the peer's endpoint.
func (o GatewayObjects) Input(in GatewayStateInput) GatewayStateInput {
	in.Gateways = slices.Grow(in.Gateways, len(o.Fabrics))
	for _, f := range undeleted(o.Fabrics) {
		if f.Namespace == o.Gateway.Namespace && f.Name == o.Gateway.Name {
			in.Self.Overlay = parseAddr(f.Spec.Interface.Gateway.IP)
			continue
		}
		in.Gateways = append(in.Gateways, gatewayMember(f))
	}
	in.Sources = frameSources(o.Fabrics, o.Nodes, in.Sources)
	for _, n := range undeleted(o.Nodes) {
		outer := n.Status.NodeIP.Remote
		if n.Name == in.Node && n.Status.NodeIP.Local != "" {
			outer = n.Status.NodeIP.Local
		}
		in.Nodes = append(in.Nodes, Member{
			Name: n.Name, Outer: parseAddr(outer), Overlay: parseAddr(n.Spec.Interface.Node.IP),
			CIDRs: netv1beta1.ParseRanges(n.Spec.PodCIDRs...),
		})
		in.Protected = append(in.Protected, parseAddrs(n.Spec.ProtectedIPs...)...)
	}
	in.Exposed = exposedBy(slices.DeleteFunc(slices.Clone(o.IPs), func(ip *ipamv1alpha1.IP) bool {
		peers, limited := ip.Annotations[api.AnnotationPeers]
		return limited && !slices.Contains(strings.Split(peers, ","), o.Peer)
	}))
	if c := o.configuration(); c != nil {
		if own := c.Spec.Local; own != nil {
			in.Pods, in.External = netv1beta1.ParseRanges(own.CIDR.Pod...), netv1beta1.ParseRanges(own.CIDR.External...)
		}
		in.Remote = c.Mappings()
	}
	return in
}

// PeerKey returns the public key of the peer's gateway in base64; "" = there is none. The oldest
// PublicKey is used, as in the controllers.
func PeerKey(all []*netv1beta1.PublicKey) string {
	if k := api.OldestOf(undeleted(all)); k != nil && len(k.Spec.PublicKey) == publicKeyLength {
		return base64.StdEncoding.EncodeToString(k.Spec.PublicKey)
	}
	return ""
}

// configuration returns the Configuration that is used; nil = there is none.
func (o GatewayObjects) configuration() *netv1beta1.Configuration {
	all := undeleted(o.Configurations)
	granted := slices.DeleteFunc(slices.Clone(all), func(c *netv1beta1.Configuration) bool {
		return c.Status.Remote == nil
	})
	return cmp.Or(api.OldestOf(granted), api.OldestOf(all))
}

func gatewayMember(f *netv1beta1.InternalFabric) Member {
	return Member{
		Name: f.Namespace + "/" + f.Name, Outer: parseAddr(f.Spec.GatewayIP),
		Overlay: parseAddr(f.Spec.Interface.Gateway.IP),
		CIDRs:   netv1beta1.ParseRanges(f.Spec.RemoteCIDRs...), MTU: f.Spec.MTU,
	}
}

// frameSources returns the addresses that frames of the overlay may come from: those of gateways
// and nodes, and further ones. A CNI may masquerade frames behind any address the node has on the
// route. While the fabric of some node has not published its addresses, the result is empty, which
// means any source. Such a fabric has a former version, or its node has just joined.
func frameSources(fabrics []*netv1beta1.InternalFabric, nodes []*netv1beta1.InternalNode,
	further []netip.Prefix) []netip.Prefix {
	sources := slices.Grow(slices.Clone(further), len(fabrics))
	add := func(text string) {
		if a := parseAddr(text); a.IsValid() && !a.IsUnspecified() {
			sources = append(sources, host(a))
		}
	}
	for _, f := range undeleted(fabrics) {
		add(f.Spec.GatewayIP)
		for _, ip := range f.Spec.StandbyIPs {
			add(ip)
		}
	}
	for _, n := range undeleted(nodes) {
		if len(n.Status.LocalAddresses) == 0 {
			return nil
		}
		add(n.Status.NodeIP.Local)
		add(n.Status.NodeIP.Remote)
		for _, text := range n.Status.LocalAddresses {
			address, _, _ := strings.Cut(text, "/")
			add(address)
		}
	}
	return sources
}

func exposedBy(ips []*ipamv1alpha1.IP) []Exposed {
	out := make([]Exposed, 0, len(ips))
	for _, ip := range undeleted(ips) {
		e := Exposed{External: parseAddr(ip.Status.IP), Target: parseAddr(ip.Spec.IP), Masquerade: ip.Spec.Masquerade}
		if e.External.IsValid() && e.Target.IsValid() {
			out = append(out, e)
		}
	}
	return out
}

// NodeObjects holds the objects a node reads, from the whole cluster.
type NodeObjects struct {
	// Node is the name of this node.
	Node    string
	Fabrics []*netv1beta1.InternalFabric
	Nodes   []*netv1beta1.InternalNode
	IPs     []*ipamv1alpha1.IP
}

// Input adds the contents of the objects to the input that the process provides. It is not ready
// while there are gateways but the node has no address in the overlay yet.
func (o NodeObjects) Input(in NodeStateInput) (_ NodeStateInput, ready bool) {
	in.Gateways = slices.Grow(in.Gateways, len(o.Fabrics))
	for _, f := range undeleted(o.Fabrics) {
		g := gatewayMember(f)
		in.Gateways = append(in.Gateways, g)
		for _, ip := range f.Spec.StandbyIPs {
			in.Standbys = append(in.Standbys, Member{Name: g.Name, Outer: parseAddr(ip), CIDRs: g.CIDRs})
		}
	}
	in.Sources = frameSources(o.Fabrics, o.Nodes, in.Sources)
	for _, n := range undeleted(o.Nodes) {
		outer := parseAddrs(n.Status.NodeIP.Local, n.Status.NodeIP.Remote)
		in.Nodes, in.Local = append(in.Nodes, outer...), append(in.Local, outer...)
		for _, text := range n.Status.LocalAddresses {
			if p, err := netip.ParsePrefix(text); err == nil {
				in.Local = append(in.Local, p.Addr())
			}
		}
		if n.Name != o.Node {
			continue
		}
		in.Self = Member{
			Name: n.Name, Overlay: parseAddr(n.Spec.Interface.Node.IP),
			CIDRs: netv1beta1.ParseRanges(n.Spec.PodCIDRs...),
		}
		if len(outer) > 0 {
			in.Self.Outer = outer[0]
		}
	}
	for _, e := range exposedBy(o.IPs) {
		if !e.Masquerade {
			in.Exposed = append(in.Exposed, e.Target)
		}
	}
	return in, len(in.Gateways) == 0 || in.Self.ready()
}

// undeleted returns the objects that are not being deleted.
func undeleted[P metav1.Object](list []P) []P {
	return slices.DeleteFunc(slices.Clone(list), func(x P) bool { return x.GetDeletionTimestamp() != nil })
}

func parseAddr(text string) netip.Addr {
	a, _ := netip.ParseAddr(text)
	return a.Unmap()
}

// parseAddrs parses addresses and leaves out text that is none.
func parseAddrs(texts ...string) []netip.Addr {
	out := make([]netip.Addr, 0, len(texts))
	for _, text := range texts {
		if a := parseAddr(text); a.IsValid() {
			out = append(out, a)
		}
	}
	return out
}

// TunnelAddresses returns the local and the peer's address in the first tunnel.
func TunnelAddresses(server bool) (own netip.Prefix, peer netip.Addr) {
	s, c := netip.MustParseAddr(api.TunnelServerAddress), netip.MustParseAddr(api.TunnelClientAddress)
	if server {
		return netip.PrefixFrom(s, api.TunnelPrefixLength), c
	}
	return netip.PrefixFrom(c, api.TunnelPrefixLength), s
}

// FurtherEnds returns the addresses in the n-th tunnel, given those in the first. Each tunnel's
// addresses are 4 higher than those of the one before.
func FurtherEnds(own netip.Prefix, peer netip.Addr, n int) (netip.Prefix, netip.Addr) {
	for range 4 * n {
		own, peer = netip.PrefixFrom(own.Addr().Next(), own.Bits()), peer.Next()
	}
	return own, peer
}
