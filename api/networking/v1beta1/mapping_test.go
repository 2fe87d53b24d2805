// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/quick"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/seed"
)

// Remapping there and back is the identity, for every prefix length, inside the prefix; outside
// nothing is mapped.
func TestRemapIsABijection(t *testing.T) {
	back := func(addr, from, to uint32, length uint8) bool {
		bits := int(length % 33)
		m := v1beta1.Mappings{{Remote: prefix(from, bits), Local: prefix(to, bits)}}
		in := ip(addr)
		local, ok := m.ToLocal(in)
		if !m[0].Remote.Contains(in) {
			return !ok
		}
		remote, back := m.ToRemote(local)
		return ok && back && m[0].Local.Contains(local) && remote == in
	}
	inside := func(host, from, to uint32, length uint8) bool {
		bits := int(length % 33)
		mask := ^uint32(0) >> bits // bits of the host part; a shift by 32 gives 0
		base := binary.BigEndian.Uint32(prefix(from, bits).Addr().AsSlice())
		return back(base|host&mask, from, to, length)
	}
	for _, property := range []any{back, inside} {
		if err := quick.Check(property, seed.Quick(t)); err != nil {
			t.Error(err)
		}
	}
}

func TestRemapIPv6(t *testing.T) {
	m, err := v1beta1.ParseMappings([]string{"fd00:1::/61"}, []string{"fd00:2:0:8::/61"})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := m.ToLocal(netip.MustParseAddr("fd00:1:0:3::9"))
	if want := netip.MustParseAddr("fd00:2:0:b::9"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestMappings: what was mapped by a former version is read by position, what cannot be a mapping is left out, and
// ranges of pods are told from others.
func TestMappings(t *testing.T) {
	type view = v1beta1.CIDRView
	views := func(list ...view) v1beta1.Configuration {
		return v1beta1.Configuration{
			Spec: v1beta1.ConfigurationSpec{Remote: &v1beta1.ClusterConfig{}},
			Status: v1beta1.ConfigurationStatus{Views: list, Remote: &v1beta1.ClusterConfig{CIDR: v1beta1.ClusterCIDR{
				Pod: []string{"10.71.0.0/16", "fd00:71::/64"}, External: []string{"10.72.0.0/16"},
			}}},
		}
	}
	former := views()
	former.Spec.Remote.CIDR = v1beta1.ClusterCIDR{
		Pod: []string{"10.10.0.5/16", "fd00:10::/64", "10.20.0.0/16"}, External: []string{"10.30.0.0/16"},
	}
	other := *former.DeepCopy()
	other.Generation = 2
	other.Status.Conditions = []metav1.Condition{{Type: v1beta1.NetworkCIDRsConfigured, ObservedGeneration: 1}}
	for claim, c := range map[string]struct {
		of        v1beta1.Configuration
		all, pods string
	}{
		"mapped": {
			views(view{"10.10.0.0/16", "10.71.0.0/16"}, view{"10.30.0.0/16", "10.72.0.0/16"}),
			"[{10.10.0.0/16 10.71.0.0/16} {10.30.0.0/16 10.72.0.0/16}]", "[{10.10.0.0/16 10.71.0.0/16}]",
		},
		"mapped by a former version": {
			former,
			"[{10.10.0.0/16 10.71.0.0/16} {fd00:10::/64 fd00:71::/64} {10.30.0.0/16 10.72.0.0/16}]",
			"[{10.10.0.0/16 10.71.0.0/16} {fd00:10::/64 fd00:71::/64}]",
		},
		"mapped by a former version, of another spec": {other, "[]", "[]"},
		"not of one length":                           {views(view{"10.10.0.0/17", "10.71.0.0/16"}), "[]", "[]"},
		"not of one family":                           {views(view{"10.10.0.0/16", "fd00::/16"}), "[]", "[]"},
		"not mapped yet":                              {v1beta1.Configuration{Spec: former.Spec}, "[]", "[]"},
	} {
		if all, pods := fmt.Sprint(c.of.Mappings()), fmt.Sprint(c.of.PodMappings()); all != c.all || pods != c.pods {
			t.Errorf("%s: %s and of pods %s, want %s and %s", claim, all, pods, c.all, c.pods)
		}
	}
}

// TestParseMappings: ranges given one by one must be pairs of one length.
func TestParseMappings(t *testing.T) {
	for _, c := range []struct {
		remote, local string
		want          string
	}{
		{"", "", "[] <nil>"},
		{"10.2.0.9/16 fd00::/64", "10.3.0.0/16 fd01::/64", "[{10.2.0.0/16 10.3.0.0/16} {fd00::/64 fd01::/64}] <nil>"},
		{"10.2.0.0/16", "", "[] 1 prefixes and 0 they are seen as; give one for each"},
		{"10.2.0.0/16", "10.3.0.0/17", "[] 10.2.0.0/16 and 10.3.0.0/17 are not of one family and length"},
		{"10.2.0.0/16", "fd00::/16", "[] 10.2.0.0/16 and fd00::/16 are not of one family and length"},
		{"10.2.0.0", "10.3.0.0/16", `[] netip.ParsePrefix("10.2.0.0"): no '/'`},
		{"10.2.0.0/16", "all", `[] netip.ParsePrefix("all"): no '/'`},
	} {
		got, err := v1beta1.ParseMappings(strings.Fields(c.remote), strings.Fields(c.local))
		if text := fmt.Sprint(got, " ", err); text != c.want {
			t.Errorf("%s and %s: %s, want %s", c.remote, c.local, text, c.want)
		}
	}
}

func ip(n uint32) netip.Addr { return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, n))) }

func prefix(n uint32, bits int) netip.Prefix { return netip.PrefixFrom(ip(n), bits).Masked() }
