// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"net/netip"
	"net/url"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
)

// proxy is where the kubeconfig's requests go through. In band it is an address of the provider's
// external range, which this cluster may come to see elsewhere: its host part stays, its prefix is
// that of the range now.
//
//	spec.authParams.proxyURL   external range seen now   proxy
//	http://10.71.0.2:8118      10.81.0.0/16              http://10.81.0.2:8118
//	http://10.71.0.2:8118      not known                 http://10.71.0.2:8118
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
	for i := range in.Configurations {
		seen := in.Configurations[i].Status.Remote
		if seen == nil {
			continue
		}
		for _, external := range seen.CIDR.External {
			if now, err := Remapped(to.Addr().String(), external); err == nil {
				at.Host = netip.AddrPortFrom(now, to.Port()).String()
				return at.String()
			}
		}
	}
	return given
}

func inBand(i *authv1beta1.Identity) bool {
	return i != nil && i.Annotations[api.AnnotationInBand] == api.True
}

// Remapped is an address of the peer's external range as seen in another one: the prefix of that
// one, the host bits of the address.
func Remapped(address, prefix string) (netip.Addr, error) {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return a, fmt.Errorf("read address: %w", err)
	}
	p, err := netip.ParsePrefix(prefix)
	if err != nil {
		return a, fmt.Errorf("read address range: %w", err)
	}
	if a.BitLen() != p.Addr().BitLen() {
		return a, fmt.Errorf("address %s does not fit the range %s", a, p)
	}
	host, network := a.AsSlice(), p.Masked().Addr().AsSlice()
	for i := range host {
		mask := byte(0xff << (8 - min(max(p.Bits()-8*i, 0), 8)))
		host[i] = network[i] | host[i]&^mask
	}
	out, _ := netip.AddrFromSlice(host)
	return out, nil
}
