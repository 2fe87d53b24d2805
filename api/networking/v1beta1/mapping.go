// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"fmt"
	"net/netip"
	"slices"
)

// Mapping pairs a range of the peer with the range that stands for it in this cluster. Both are masked, and of one
// family and length. They are equal where nothing is remapped.
// +kubebuilder:object:generate=false
type Mapping struct{ Remote, Local netip.Prefix }

// NewMapping masks two ranges. It fails unless they are of one family and length.
func NewMapping(remote, local netip.Prefix) (Mapping, error) {
	if !remote.IsValid() || remote.Bits() != local.Bits() || remote.Addr().BitLen() != local.Addr().BitLen() {
		return Mapping{}, fmt.Errorf("%s and %s are not of one family and length", remote, local)
	}
	return Mapping{remote.Masked(), local.Masked()}, nil
}

func parseMapping(remote, local string) (Mapping, error) {
	r, err := netip.ParsePrefix(remote)
	if err != nil {
		return Mapping{}, err
	}
	l, err := netip.ParsePrefix(local)
	if err != nil {
		return Mapping{}, err
	}
	return NewMapping(r, l)
}

// Mappings are the mappings of one peer. No two of them overlap.
// +kubebuilder:object:generate=false
type Mappings []Mapping

// ParseMappings pairs ranges of a peer with those that stand for them here, by position.
func ParseMappings(remote, local []string) (Mappings, error) {
	if len(remote) != len(local) {
		return nil, fmt.Errorf("%d prefixes and %d they are seen as; give one for each", len(remote), len(local))
	}
	var out Mappings
	for i := range remote {
		m, err := parseMapping(remote[i], local[i])
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// Mappings returns the ranges of the peer that have been mapped, pods first.
func (x *Configuration) Mappings() Mappings {
	var out Mappings
	for _, v := range x.views() {
		if m, err := parseMapping(v.CIDR, v.SeenAs); err == nil {
			out = append(out, m)
		}
	}
	return out
}

// PodMappings returns the mappings of the ranges of the peer's pods.
func (x *Configuration) PodMappings() Mappings {
	if x.Status.Remote == nil {
		return nil
	}
	pods := ParseRanges(x.Status.Remote.CIDR.Pod...)
	return slices.DeleteFunc(x.Mappings(), func(m Mapping) bool { return !slices.Contains(pods, m.Local) })
}

// ToLocal returns the address that stands here for an address of the peer. It returns false if no range of the peer
// contains the address.
func (m Mappings) ToLocal(remote netip.Addr) (netip.Addr, bool) {
	for i := range m {
		if m[i].Remote.Contains(remote) {
			return swap(remote, m[i].Local), true
		}
	}
	return netip.Addr{}, false
}

// ToRemote is the inverse of ToLocal. It returns false if the address stands for none of the peer's.
func (m Mappings) ToRemote(local netip.Addr) (netip.Addr, bool) {
	for i := range m {
		if m[i].Local.Contains(local) {
			return swap(local, m[i].Remote), true
		}
	}
	return netip.Addr{}, false
}

// swap returns an address with the prefix of a range of its family and with its own host bits.
func swap(a netip.Addr, to netip.Prefix) netip.Addr {
	host, network := a.As16(), to.Addr().As16()
	fixed := len(host)*8 - a.BitLen() + to.Bits() // an IPv4 address is the end of its As16
	for i := range host {
		host[i] = network[i] | host[i]&^(0xff<<(8-min(max(fixed-8*i, 0), 8)))
	}
	if a.Is4() {
		return netip.AddrFrom4([4]byte(host[12:]))
	}
	return netip.AddrFrom16(host)
}

// Ranges are parsed CIDRs, masked.
// +kubebuilder:object:generate=false
type Ranges []netip.Prefix

// ParseRanges parses CIDRs. It leaves out text that is no CIDR, which the API server refuses.
func ParseRanges(cidrs ...string) Ranges {
	out := slices.Grow(Ranges(nil), len(cidrs))
	for _, text := range cidrs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// ParseHosts parses addresses, each as the range that contains nothing else. It leaves out text that is no address.
func ParseHosts(addresses ...string) Ranges {
	var out Ranges
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// Contains reports whether an address lies in one of the ranges.
func (r Ranges) Contains(a netip.Addr) bool {
	return slices.ContainsFunc(r, func(p netip.Prefix) bool { return p.Contains(a) })
}
