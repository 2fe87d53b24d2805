// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/seed"
	kernel "github.com/liqo-go/liqo/network/plan"
)

// TestNetworksNeverOverlap: after any sequence of creations and deletions, granted CIDRs overlap
// only if both are shared. They have the requested length, and lie in a pool unless they are shared
// and not remapped.
func TestNetworksNeverOverlap(t *testing.T) {
	pools := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/20"), netip.MustParsePrefix("192.168.0.0/22"), netip.MustParsePrefix("fd00::/44")}
	for _, r := range seed.Samples(t, 60) {
		var networks []ipamv1alpha1.Network
		for step := range 120 {
			if len(networks) > 0 && r.IntN(4) == 0 {
				i := r.IntN(len(networks))
				networks = append(networks[:i], networks[i+1:]...)
				continue
			}
			networks = append(networks, randomNetwork(r, step))
			i := r.IntN(len(networks))
			p := Network(NetworkInput{Root: &networks[i], Networks: networks, Pools: pools})
			if status, ok := p.Status.(*ipamv1alpha1.Network); ok {
				networks[i].Status.CIDR = status.Status.CIDR
			}
			checkGrants(t, networks, pools)
		}
	}
}

func randomNetwork(r *rand.Rand, n int) ipamv1alpha1.Network {
	bits := 20 + r.IntN(7)
	addr, _ := plus(netip.MustParseAddr("10.0.0.0"), uint64(r.IntN(1<<13)))
	switch r.IntN(4) {
	case 0:
		addr, _ = plus(netip.MustParseAddr("192.168.0.0"), uint64(r.IntN(1<<10)))
	case 1:
		addr, bits = netip.MustParseAddr(fmt.Sprintf("fd00:0:%x::", r.IntN(32))), 46+r.IntN(4)
	}
	labels := map[string]string{}
	if r.IntN(4) == 0 {
		labels[api.LabelNetworkNotRemapped] = api.True
	}
	if r.IntN(4) == 0 {
		labels[api.LabelNetworkShared] = api.True
	}
	return ipamv1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", n), Labels: labels},
		Spec:       ipamv1alpha1.NetworkSpec{CIDR: netip.PrefixFrom(addr, bits).Masked().String()},
	}
}

func checkGrants(t *testing.T, networks []ipamv1alpha1.Network, pools []netip.Prefix) {
	t.Helper()
	for i := range networks {
		a := &networks[i]
		if a.Status.CIDR == "" {
			continue
		}
		granted, wished := netip.MustParsePrefix(a.Status.CIDR), netip.MustParsePrefix(a.Spec.CIDR)
		if granted.Bits() != wished.Bits() || isNotRemapped(a) && granted != wished {
			t.Fatalf("%s wished for %s and got %s", a.Name, wished, granted)
		}
		if !inPool(granted, pools) && !(isNotRemapped(a) && isShared(a)) {
			t.Fatalf("%s got %s outside the pools", a.Name, granted)
		}
		for j := range networks[:i] {
			b := &networks[j]
			if b.Status.CIDR != "" && granted.Overlaps(netip.MustParsePrefix(b.Status.CIDR)) && !(isShared(a) && isShared(b)) {
				t.Fatalf("%s %s overlaps %s %s", a.Name, granted, b.Name, b.Status.CIDR)
			}
		}
	}
}

// TestFreeBlockFindsAnyFreeBlock: a free block is found whenever there is one. Jumping over taken
// ranges skips nothing.
func TestFreeBlockFindsAnyFreeBlock(t *testing.T) {
	pool := netip.MustParsePrefix("10.0.0.0/26")
	for _, r := range seed.Samples(t, 300) {
		var taken []netip.Prefix
		for range r.IntN(14) {
			addr, _ := plus(pool.Addr(), uint64(r.IntN(64)))
			taken = append(taken, netip.PrefixFrom(addr, 27+r.IntN(6)).Masked())
		}
		wish := netip.PrefixFrom(pool.Addr(), 28+r.IntN(5))
		any := false
		for addr := pool.Addr(); pool.Contains(addr); addr = addr.Next() {
			block := netip.PrefixFrom(addr, wish.Bits())
			any = any || block == block.Masked() && !slices.ContainsFunc(taken, block.Overlaps)
		}
		block, ok := freeBlock(wish, []netip.Prefix{pool}, taken)
		if ok != any || ok && (slices.ContainsFunc(taken, block.Overlaps) || !covers(pool, block)) {
			t.Fatalf("taken %v: got %v %v, want one: %v", taken, block, ok, any)
		}
	}
}

// TestOverlayAddressesAreAssignedOnce: the three controllers that assign overlay addresses decide from
// observations that include only their own last action. No address is assigned twice.
func TestOverlayAddressesAreAssignedOnce(t *testing.T) {
	cidr := netip.MustParsePrefix("10.80.0.0/26")
	given := map[netip.Addr]string{}
	var fabrics []netv1beta1.InternalFabric
	var nodes []netv1beta1.InternalNode
	for i := range 14 {
		for _, part := range []overlayPart{overlayNodes, overlayServers, overlayClients} {
			seen := fabrics
			if part == overlayNodes {
				seen = nil
			}
			_, used := Overlay{Fabrics: seen, Nodes: nodes}.inUse(corev1.ObjectReference{})
			addr, ok := overlayAddress(cidr, part, "", used)
			if !ok || addr == kernel.First(cidr) || addr == kernel.Last(cidr) {
				t.Fatalf("part %d, number %d: got %v %v", part, i, addr, ok)
			}
			if other, twice := given[addr]; twice {
				t.Fatalf("%s is given to part %d and %s", addr, part, other)
			}
			given[addr] = fmt.Sprint("part ", part)
			if part == overlayNodes {
				n := netv1beta1.InternalNode{}
				n.Spec.Interface.Node.IP = addr.String()
				nodes = append(nodes, n)
				continue
			}
			f := netv1beta1.InternalFabric{}
			f.Spec.Interface.Gateway.IP = addr.String()
			fabrics = append(fabrics, f)
		}
	}
}

// TestOverlayAddressIsKept: an object keeps an address in the range that no other object has.
// All others are assigned one.
func TestOverlayAddressIsKept(t *testing.T) {
	network := ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: api.NetworkInternalCIDR, Labels: map[string]string{api.LabelNetworkType: api.NetworkTypeInternalCIDR}}}
	network.Status.CIDR = "10.80.0.0/26"
	for name, c := range map[string]struct {
		own, other string
		late       map[string]string
		keeps      bool
	}{
		"its own":               {"10.80.0.33", "10.80.0.34", nil, true},
		"none":                  {"", "10.80.0.34", nil, false},
		"another's":             {"10.80.0.34", "10.80.0.34", nil, false},
		"of another CIDR":       {"10.81.0.33", "10.80.0.34", nil, false},
		"no address":            {"here", "10.80.0.34", nil, false},
		"its own, assigned now": {"", "10.80.0.34", map[string]string{"own": "10.80.0.33"}, true},
		"another's by now":      {"10.80.0.33", "10.80.0.34", map[string]string{"third": "10.80.0.33"}, false},
	} {
		overlay := Overlay{Late: map[corev1.ObjectReference]string{}}
		for object, address := range c.late {
			overlay.Late[corev1.ObjectReference{Kind: "InternalFabric", Namespace: "peer", Name: object}] = address
		}
		for object, address := range map[string]string{"own": c.own, "other": c.other} {
			f := netv1beta1.InternalFabric{ObjectMeta: metav1.ObjectMeta{Namespace: "peer", Name: object}}
			f.Spec.Interface.Gateway.IP = address
			overlay.Fabrics = append(overlay.Fabrics, f)
		}
		self := FabricOf(&netv1beta1.GatewayServer{ObjectMeta: metav1.ObjectMeta{Namespace: "peer", Name: "own"}})
		if got := overlay.Keeps(self, []ipamv1alpha1.Network{network}, "liqo"); got != c.keeps {
			t.Errorf("%s: keeps it: %v, want %v", name, got, c.keeps)
		}
		if overlay.Keeps(self, nil, "liqo") {
			t.Errorf("%s: kept in a range that is not granted", name)
		}
	}
}

// TestEveryAddressIsGrantedOnce: IPs get all addresses of a network except the reserved ones, each
// once, for any UIDs. The address of a deleted IP is not granted to the next one.
func TestEveryAddressIsGrantedOnce(t *testing.T) {
	r := seed.Rand(t)
	network := ipamv1alpha1.Network{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: api.NetworkExternalCIDR}}
	network.Spec.PreAllocated = 3
	network.Status.CIDR = "10.70.0.0/24"
	var ips []ipamv1alpha1.IP
	grant := func() *ipamv1alpha1.IP {
		root := ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(r.Uint64()))}, Spec: ipamv1alpha1.IPSpec{IP: "192.0.2.7"}}
		p := IP(IPInput{Root: &root, IPs: ips, Networks: []ipamv1alpha1.Network{network}, LiqoNamespace: "liqo"})
		if status, ok := p.Status.(*ipamv1alpha1.IP); ok {
			root.Status.IP = status.Status.IP
		}
		return &root
	}
	again := 0
	for range 100 {
		deleted := grant().Status.IP
		if grant().Status.IP == deleted {
			again++
		}
	}
	if again > 10 { // 0.4 are expected
		t.Errorf("of 100 addresses that were freed %d went to the next IP", again)
	}
	seen := map[string]bool{}
	for range 256 - 3 {
		ip := grant()
		a, err := netip.ParseAddr(ip.Status.IP)
		if err != nil || seen[ip.Status.IP] || a.As4()[3] < 3 {
			t.Fatalf("after %d IPs the next gets %q", len(ips), ip.Status.IP)
		}
		seen[ip.Status.IP] = true
		ips = append(ips, *ip)
	}
	if ip := grant(); ip.Status.IP != "" {
		t.Errorf("a full network has %s", ip.Status.IP)
	}
}
