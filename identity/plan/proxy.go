// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"net/netip"
	"net/url"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// proxy returns the URL of the proxy for the kubeconfig. In band its host is an address in the
// provider's external range. If this cluster has remapped that range, the address gets the present
// prefix and keeps its host part.
//
//	spec.authParams.proxyURL   present external ranges        proxy
//	http://10.71.0.2:8118      10.81.0.0/16                   http://10.81.0.2:8118
//	http://10.71.0.2:8118      10.81.0.0/16, 10.71.0.0/16     http://10.71.0.2:8118
//	http://10.71.0.2:8118      not known                      http://10.71.0.2:8118
func (in IdentityInput) proxy(given string) string {
	if !inBand(in.Root) && !inBand(in.ControlPlane) {
		return given
	}
	at, err := url.Parse(given)
	if err != nil {
		return given
	}
	to, err := netip.ParseAddrPort(at.Host)
	if err != nil {
		return given
	}
	var ranges netv1beta1.Ranges
	for i := range in.Configurations {
		if seen := in.Configurations[i].Status.Remote; seen != nil {
			ranges = append(ranges, netv1beta1.ParseRanges(seen.CIDR.External...)...)
		}
	}
	if ranges.Contains(to.Addr()) {
		return given
	}
	for _, now := range ranges {
		if moved, err := netv1beta1.NewMapping(netip.PrefixFrom(to.Addr(), now.Bits()), now); err == nil {
			address, _ := netv1beta1.Mappings{moved}.ToLocal(to.Addr())
			at.Host = netip.AddrPortFrom(address, to.Port()).String()
			return at.String()
		}
	}
	return given
}

func inBand(i *authv1beta1.Identity) bool {
	return i != nil && i.Annotations[api.AnnotationInBand] == api.True
}
