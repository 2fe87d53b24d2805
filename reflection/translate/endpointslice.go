// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// nativeSlices manages the slices of Services with a selector. Those of the provider hold the pods
// that are there.
const nativeSlices = "endpointslice-controller.k8s.io"

// EndpointSlice pushes the endpoints that are not at the provider: those are covered by its own
// slices, unless the slice was written by hand. Home pods keep their addresses, which the provider
// remaps as it does all of this cluster's; others (pods at further providers) are named by the
// address this cluster gives them for its peers, or by their own where the user wants direct
// connections. A slice without such endpoints is pushed empty.
//
// Endpoints that the provider cannot reach are left out, and the error names one beside the slice:
// the others must still be updated, or traffic would be sent to pods that no longer exist.
// Contradictory annotations are an error without a slice.
//
// The provider creates an EndpointSlice from it in offloading/plan/shadowendpointslice.go:
// ShadowEndpointSlice.
func EndpointSlice(home *discoveryv1.EndpointSlice, remote *offv1beta1.ShadowEndpointSlice,
	v View) (*offv1beta1.ShadowEndpointSlice, error) {
	wanted, err := sliceReflects(home, v)
	if err != nil || !wanted {
		return nil, err
	}
	endpoints, direct, unreachable := endpointsElsewhere(home, v)
	out := copyOf(remote)
	out.ObjectMeta = v.metadata(home.ObjectMeta, out.ObjectMeta, home.Name)
	out.Labels[discoveryv1.LabelManagedBy] = api.EndpointSliceManagedBy
	setJSON(&out.ObjectMeta, api.AnnotationDirectConnectionsData, direct, len(direct))
	atProvider := providerEndpoints(home, v)
	setJSON(&out.ObjectMeta, api.AnnotationProviderEndpoints, atProvider, len(atProvider))
	out.Spec.Template = offv1beta1.EndpointSliceTemplate{
		AddressType: home.AddressType,
		Endpoints:   endpoints,
		Ports:       home.Ports,
	}
	if remote != nil && remote.Spec.Template.AddressType != home.AddressType {
		return nil, nil
	}
	return out, unreachable
}

// sliceReflects reports whether a slice is reflected: by its own annotation, otherwise by its
// Service.
func sliceReflects(home *discoveryv1.EndpointSlice, v View) (bool, error) {
	allow := marked(home.Annotations, api.AnnotationAllowReflection)
	skip := marked(home.Annotations, api.AnnotationSkipReflection)
	switch {
	case v.HideIPs:
		return false, nil
	case allow && skip:
		return false, fmt.Errorf("annotations %s and %s exclude each other; remove one", api.AnnotationAllowReflection,
			api.AnnotationSkipReflection)
	case allow || skip:
		return allow, nil
	case v.Service == nil || apiServerService(v.Service):
		return false, nil
	}
	return reflects(v.Service.Annotations, v.ServiceAllowList), nil
}

// endpointsElsewhere returns the endpoints to push, and, by cluster, their addresses that are
// reached directly instead of through the consumer. The error names the first address that excludes
// an endpoint.
func endpointsElsewhere(home *discoveryv1.EndpointSlice, v View) (out []discoveryv1.Endpoint,
	direct map[string][]string, unreachable error) {
	direct = map[string][]string{}
	owners := homeAddresses(home, v)
	for _, in := range home.Endpoints {
		if in.NodeName != nil && v.ProviderNodes[*in.NodeName] || v.providerAddresses(in) != nil {
			continue
		}
		addresses, at := directAddresses(in, v, owners)
		direct[at] = append(direct[at], addresses...)
		if at == "" {
			var err error
			if addresses, err = peerAddresses(in.Addresses, v); err != nil {
				unreachable = cmp.Or(unreachable, err)
				continue
			}
		}
		out = append(out, discoveryv1.Endpoint{
			Addresses:  addresses,
			Conditions: in.Conditions,
			Hostname:   in.Hostname,
			NodeName:   new(v.Consumer),
		})
	}
	delete(direct, "")
	return out, direct, unreachable
}

// providerEndpoints returns the endpoints of a slice written by hand that are pods at the provider.
// The provider's own slices do not cover them: an operator wrote the slice, or it mirrors
// Endpoints.
func providerEndpoints(home *discoveryv1.EndpointSlice, v View) (out []discoveryv1.Endpoint) {
	if home.Labels[discoveryv1.LabelManagedBy] == nativeSlices {
		return nil
	}
	for _, in := range home.Endpoints {
		if in.Addresses = v.providerAddresses(in); in.Addresses != nil {
			out = append(out, discoveryv1.Endpoint{Addresses: in.Addresses, Conditions: in.Conditions,
				Hostname: in.Hostname})
		}
	}
	return out
}

// providerAddresses returns the addresses that the pod behind an endpoint has at the provider. It
// returns nil if the endpoint is no pod of the provider, or the provider's ranges are not known
// yet. Slices written by hand need not name the pod's node.
func (v View) providerAddresses(in discoveryv1.Endpoint) (out []string) {
	if len(v.PeerPods) == 0 && !v.Networked && in.NodeName != nil && v.ProviderNodes[*in.NodeName] {
		return in.Addresses
	}
	for _, text := range in.Addresses {
		addr, err := netip.ParseAddr(text)
		remote, ok := v.PeerPods.ToRemote(addr)
		if err != nil || !ok {
			return nil
		}
		out = append(out, remote.String())
	}
	return out
}

// providerOf returns the cluster ID of the further provider that runs the pod behind an endpoint;
// empty = none does. An endpoint written by hand may name no node.
func (v View) providerOf(in discoveryv1.Endpoint) string {
	if in.NodeName != nil {
		return v.OtherNodes[*in.NodeName]
	}
	for id, mappings := range v.OtherPods {
		here := func(text string) bool {
			addr, err := netip.ParseAddr(text)
			_, ok := mappings.ToRemote(addr)
			return err == nil && ok
		}
		if slices.ContainsFunc(in.Addresses, here) {
			return id
		}
	}
	return ""
}

// homeAddresses returns the addresses of the endpoints that are not at a further provider, which
// stand for the consumer.
func homeAddresses(home *discoveryv1.EndpointSlice, v View) map[netip.Addr]string {
	owners := map[netip.Addr]string{}
	for _, in := range home.Endpoints {
		if v.providerOf(in) != "" {
			continue
		}
		for _, text := range in.Addresses {
			if addr, err := netip.ParseAddr(text); err == nil {
				owners[addr] = v.Consumer
			}
		}
	}
	return owners
}

// directAddresses returns the addresses that a pod has at a further provider, and that provider, if
// the user wants direct connections between providers. It returns none if one of them is also the
// address of a home pod of the slice, or of a pod at another provider: then the pod is reached
// through the consumer.
func directAddresses(in discoveryv1.Endpoint, v View, owners map[netip.Addr]string) (addresses []string, at string) {
	if v.Service == nil || v.Service.Annotations[api.AnnotationUseDirectConnections] != api.True {
		return nil, ""
	}
	at = v.providerOf(in)
	for _, text := range in.Addresses {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return nil, ""
		}
		if remote, ok := v.OtherPods[at].ToRemote(addr); ok {
			addr = remote
		}
		if owner := owners[addr]; v.external(addr) || owner != "" && owner != at {
			return nil, ""
		}
		owners[addr] = at
		addresses = append(addresses, addr.String())
	}
	return addresses, at
}

// setJSON sets an annotation to the JSON of a value, which always encodes; n = 0 removes what a
// user wrote there.
func setJSON(meta *metav1.ObjectMeta, key string, value any, n int) {
	delete(meta.Annotations, key)
	if text, err := json.Marshal(value); err == nil && n > 0 {
		meta.Annotations[key] = string(text)
	}
}

// peerAddresses returns the addresses under which the provider reaches an endpoint, before it
// remaps this cluster's ranges.
func peerAddresses(addresses []string, v View) ([]string, error) {
	out := make([]string, len(addresses))
	for i, text := range addresses {
		out[i] = text
		addr, err := netip.ParseAddr(text)
		if err != nil && v.Networked {
			return nil, fmt.Errorf("%s is a host name, and a connected provider takes only addresses of this "+
				"cluster's ranges, so its endpoint is left out; a Service of type ExternalName may name a host", text)
		}
		if err != nil {
			out[i] = v.dnsName(text) // of a slice of type FQDN
			continue
		}
		if v.atHome(addr) {
			continue
		}
		external, ok := v.External[addr]
		if !ok && v.external(addr) {
			continue // of the Service that an IP object asked for
		}
		if !ok {
			return nil, fmt.Errorf("address %s not found: it is no pod address of this cluster and no IP object "+
				"stands for it, so its endpoint is left out", text)
		}
		out[i] = external.String()
	}
	return out, nil
}

// external reports whether peers know an IP object by this address.
func (v View) external(addr netip.Addr) bool {
	for _, known := range v.External {
		if known == addr {
			return true
		}
	}
	return false
}

func (v View) atHome(addr netip.Addr) bool { return len(v.HomePods) == 0 || v.HomePods.Contains(addr) }
