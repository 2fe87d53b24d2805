// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	networkingv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// ShadowEndpointSliceInput holds a ShadowEndpointSlice and the state of the networks that it refers
// to.
type ShadowEndpointSliceInput struct {
	Root *offloadingv1beta1.ShadowEndpointSlice
	// Origin is the ID of the consumer that the namespace was created for.
	Origin string
	// Configurations are those of this cluster, by the ID of the peer.
	Configurations map[string]networkingv1beta1.Configuration
	// Down says that the tunnel to the consumer is not connected, or its API server does not
	// answer.
	Down bool
	// DenyDirect prevents endpoints at third clusters that are reached directly.
	DenyDirect bool
	// Networked says that the networking module is enabled for the consumer.
	Networked bool
	// Own holds the addresses of this cluster's nodes and Services.
	Own networkingv1beta1.Ranges
	// Pods holds the nodes of the consumer's pods in this cluster by their addresses, of
	// ProviderAddresses at least.
	Pods map[netip.Addr]string
}

// ShadowEndpointSlice plans the endpoint slice of a ShadowEndpointSlice, with remapped addresses.
// The endpoints are not ready while the consumer is unreachable. Without networking, addresses
// stay, except those of this cluster's nodes and Services, which a consumer must not use as
// endpoints. Pods in this cluster may be endpoints if they are the consumer's. The consumer writes
// the ShadowEndpointSlice in reflection/translate/endpointslice.go: EndpointSlice.
func ShadowEndpointSlice(in ShadowEndpointSliceInput) desired.Plan {
	if in.Networked && !in.configured() {
		return desired.Plan{Verdict: mappingVerdict(in.Origin)}
	}
	mappings := map[string]networkingv1beta1.Mappings{}
	for id, c := range in.Configurations {
		if id != in.Origin && c.Annotations[api.AnnotationDenyDirectConnections] == api.True {
			continue
		}
		mappings[id] = c.Mappings()
		if id == in.Origin && len(mappings[id]) == 0 {
			return desired.Plan{Verdict: mappingVerdict(in.Origin)}
		}
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: in.Root.Name, Namespace: in.Root.Namespace,
			Labels: maps.Clone(in.Root.Labels), Annotations: maps.Clone(in.Root.Annotations),
		},
		AddressType: in.Root.Spec.Template.AddressType,
		Ports:       in.Root.Spec.Template.Ports,
	}
	metav1.SetMetaDataLabel(&slice.ObjectMeta, api.LabelManagedBy, api.ManagedByShadowEndpointSlice)
	metav1.SetMetaDataLabel(&slice.ObjectMeta, discoveryv1.LabelManagedBy, api.EndpointSliceManagedBy)
	out := desired.Plan{Objects: []desired.Object{slice}}
	data, here, err := in.annotated()
	if err != nil { // then the owners of the addresses are unknown
		out.Verdict = desired.Block("AnnotationInvalid", "%v; the virtual kubelet of %s writes it, do not edit it",
			err, in.Origin).Verdict
		return out
	}
	direct := ownersOf(data)
	for _, endpoint := range in.Root.Spec.Template.Endpoints {
		e := *endpoint.DeepCopy()
		consumers := slices.DeleteFunc(slices.Clone(e.Addresses), func(a string) bool { return direct[a] != "" })
		if in.DenyDirect {
			e.Addresses = consumers
		}
		e.Addresses = remap(e.Addresses, in.Origin, direct, mappings)
		if i := slices.IndexFunc(e.Addresses, in.refuses); !in.configured() && i >= 0 {
			out.Degraded = desired.Block("AddressRefused",
				"address %s is one of this cluster's nodes or Services, or is not routed, so its endpoint is left "+
					"out; enable the network module for %s if the address is of a pod there",
				e.Addresses[i], in.Origin).Verdict
			continue
		}
		if len(e.Addresses) == 0 {
			if in.announced(consumers) {
				out.Degraded = mappingVerdict(in.Origin)
			}
			continue
		}
		if in.Down {
			e.Conditions.Ready, e.Conditions.Serving = new(false), new(false)
		}
		slice.Endpoints = append(slice.Endpoints, e)
	}
	in.addLocal(&out, slice, here)
	return out
}

// annotated decodes the annotations: addresses in third clusters by their IDs, and endpoints in
// this cluster.
func (in ShadowEndpointSliceInput) annotated() (data map[string][]string, here []discoveryv1.Endpoint, err error) {
	for _, annotation := range []struct {
		key  string
		into any
	}{{api.AnnotationDirectConnectionsData, &data}, {api.AnnotationProviderEndpoints, &here}} {
		text, ok := in.Root.Annotations[annotation.key]
		if !ok {
			continue
		}
		if err := json.Unmarshal([]byte(text), annotation.into); err != nil {
			return nil, nil, fmt.Errorf("read annotation %s of ShadowEndpointSlice %s: %w", annotation.key,
				in.Root.Name, err)
		}
	}
	return data, here, nil
}

// addLocal adds the endpoints in this cluster that are pods of the consumer, with their nodes: a pod
// reaches itself through a Service only so from Kubernetes 1.37 on, and kube-proxy takes endpoints
// without a node for those of other nodes (internalTrafficPolicy).
func (in ShadowEndpointSliceInput) addLocal(out *desired.Plan, slice *discoveryv1.EndpointSlice,
	here []discoveryv1.Endpoint) {
	for _, e := range here {
		if i := slices.IndexFunc(e.Addresses, in.isForeign); i >= 0 {
			out.Degraded = desired.Block("AddressRefused",
				"address %s is not of a pod that runs here for %s, so its endpoint is left out", e.Addresses[i],
				in.Origin).Verdict
			continue
		}
		if len(e.Addresses) == 0 {
			continue // the API server would refuse the slice
		}
		node := in.Pods[netip.MustParseAddr(e.Addresses[0])]
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: e.Addresses, Conditions: e.Conditions, Hostname: e.Hostname, NodeName: &node,
		})
	}
}

// ProviderAddresses returns the addresses of a ShadowEndpointSlice's endpoints in this cluster.
func ProviderAddresses(root *offloadingv1beta1.ShadowEndpointSlice) []netip.Addr {
	text, ok := root.Annotations[api.AnnotationProviderEndpoints]
	var endpoints []discoveryv1.Endpoint
	if !ok || json.Unmarshal([]byte(text), &endpoints) != nil {
		return nil
	}
	var out []netip.Addr
	for _, endpoint := range endpoints {
		for _, text := range endpoint.Addresses {
			if address, err := netip.ParseAddr(text); err == nil {
				out = append(out, address)
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// isForeign reports whether an address is not of a pod of the consumer in this cluster.
func (in ShadowEndpointSliceInput) isForeign(text string) bool {
	address, err := netip.ParseAddr(text)
	return err != nil || in.Pods[address] == ""
}

// configured reports whether there is a Configuration for the consumer.
func (in ShadowEndpointSliceInput) configured() bool {
	_, ok := in.Configurations[in.Origin]
	return ok
}

// refuses reports whether an address is of this cluster's nodes or Services, or is not routed.
func (in ShadowEndpointSliceInput) refuses(text string) bool {
	address, err := netip.ParseAddr(text)
	if err != nil {
		return false // a host name
	}
	address = address.Unmap()
	return !address.IsGlobalUnicast() || in.Own.Contains(address)
}

// mappingVerdict reports that addresses of the consumer are not remapped yet.
func mappingVerdict(origin string) desired.Verdict {
	return desired.Wait("AddressesPending", "the addresses of %s are being mapped; look at its Configuration if this "+
		"lasts", origin).Verdict
}

// announced reports whether some of the addresses are in ranges that the consumer has announced.
func (in ShadowEndpointSliceInput) announced(addresses []string) bool {
	remote := in.Configurations[in.Origin].Spec.Remote
	if remote == nil {
		return false
	}
	ranges := networkingv1beta1.ParseRanges(slices.Concat(remote.CIDR.Pod, remote.CIDR.External)...)
	return slices.ContainsFunc(addresses, func(text string) bool {
		address, err := netip.ParseAddr(text)
		return err == nil && ranges.Contains(address)
	})
}

// ownersOf returns the ID of the third cluster that has an address. The address stays that
// cluster's even if direct connections are denied, because the consumer may have an equal one.
func ownersOf(data map[string][]string) map[string]string {
	out := map[string]string{}
	for id, addresses := range data {
		for _, a := range addresses {
			out[a] = id
		}
	}
	return out
}

// remap returns addresses as they are known in this cluster. It leaves out addresses outside the
// ranges of their cluster, because a consumer must not choose arbitrary endpoints for Services.
func remap(
	addresses []string, origin string, direct map[string]string, mappings map[string]networkingv1beta1.Mappings,
) []string {
	var out []string
	for _, text := range addresses {
		owner := origin
		if id, ok := direct[text]; ok {
			owner = id
		}
		ranges, networked := mappings[owner]
		if !networked {
			if owner == origin {
				out = append(out, text)
			}
			continue
		}
		address, err := netip.ParseAddr(text)
		if err != nil {
			continue
		}
		if local, ok := ranges.ToLocal(address.Unmap()); ok {
			out = append(out, local.String())
		}
	}
	return out
}
