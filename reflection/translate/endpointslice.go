// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// EndpointSlice pushes the endpoints that are not at the provider: those are covered by its own
// slices. Home pods keep their addresses, which the provider remaps as it does all of this
// cluster's; others (pods at further providers) are named by the address this cluster gives
// them for its peers. A slice without such endpoints is not pushed. It fails when an address
// cannot be reached by the provider, and when annotations contradict each other.
func EndpointSlice(home *discoveryv1.EndpointSlice, remote *offv1beta1.ShadowEndpointSlice, v View) (*offv1beta1.ShadowEndpointSlice, error) {
	wanted, err := sliceReflects(home, v)
	if err != nil || !wanted {
		return nil, err
	}
	endpoints, err := endpointsElsewhere(home, v)
	if err != nil || len(endpoints) == 0 {
		return nil, err
	}
	out := &offv1beta1.ShadowEndpointSlice{}
	if remote != nil {
		remote.DeepCopyInto(out)
	}
	out.ObjectMeta = v.metadata(home.ObjectMeta, out.ObjectMeta, home.Name)
	out.Labels[discoveryv1.LabelManagedBy] = api.EndpointSliceManagedBy
	out.Spec.Template = offv1beta1.EndpointSliceTemplate{
		AddressType: home.AddressType,
		Endpoints:   endpoints,
		Ports:       home.Ports,
	}
	if remote != nil && remote.Spec.Template.AddressType != home.AddressType {
		return nil, nil
	}
	return out, nil
}

// sliceReflects: a slice's own annotation decides, otherwise its Service.
func sliceReflects(home *discoveryv1.EndpointSlice, v View) (bool, error) {
	allow := marked(home.Annotations, api.AnnotationAllowReflection)
	skip := marked(home.Annotations, api.AnnotationSkipReflection)
	switch {
	case v.HideIPs:
		return false, nil
	case allow && skip:
		return false, fmt.Errorf("annotations %s and %s exclude each other; remove one", api.AnnotationAllowReflection, api.AnnotationSkipReflection)
	case allow || skip:
		return allow, nil
	case v.Service == nil || apiServerService(v.Service):
		return false, nil
	}
	return reflects(v.Service.Annotations, v.ServiceAllowList), nil
}

func endpointsElsewhere(home *discoveryv1.EndpointSlice, v View) ([]discoveryv1.Endpoint, error) {
	var out []discoveryv1.Endpoint
	for _, in := range home.Endpoints {
		if in.NodeName != nil && v.ProviderNodes[*in.NodeName] {
			continue
		}
		addresses, err := peerAddresses(in.Addresses, v)
		if err != nil {
			return nil, err
		}
		out = append(out, discoveryv1.Endpoint{
			Addresses:  addresses,
			Conditions: in.Conditions,
			Hostname:   in.Hostname,
			NodeName:   new(v.Consumer),
		})
	}
	return out, nil
}

// peerAddresses are the addresses under which the provider reaches an endpoint, before it
// remaps this cluster's prefixes.
func peerAddresses(addresses []string, v View) ([]string, error) {
	out := make([]string, len(addresses))
	for i, text := range addresses {
		out[i] = text
		addr, err := netip.ParseAddr(text)
		if err != nil || atHome(v.HomePods, addr) {
			continue // a host name (FQDN slices) or a home pod
		}
		external, ok := v.External[addr]
		if !ok && v.external(addr) {
			continue // of the Service that an IP object asked for
		}
		if !ok {
			return nil, fmt.Errorf("address %s not found: it is no pod address of this cluster and no IP object stands for it", text)
		}
		out[i] = external.String()
	}
	return out, nil
}

// external tells whether peers know an IP object under this address.
func (v View) external(addr netip.Addr) bool {
	for _, known := range v.External {
		if known == addr {
			return true
		}
	}
	return false
}

func atHome(pods []netip.Prefix, addr netip.Addr) bool {
	for _, p := range pods {
		if p.Contains(addr) {
			return true
		}
	}
	return len(pods) == 0
}
