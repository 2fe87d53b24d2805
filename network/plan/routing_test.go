// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// FuzzRoutes: for anything that users write, each route and rule is valid for the kernel and in a
// routing table of its own object, or is left out and reported.
func FuzzRoutes(f *testing.F) {
	f.Add("y", "10.20.0.0/16", "10.10.0.1", "10.10.0.5", "eth0", "10.11.0.0/16", "10.21.0.0/16", "eth1", 42, 80, byte(0))
	f.Add("y96293", "fd00:20::/64", "fd00::1", "", "", "::/0", "fd00::/16", "", 0, 0, byte(1)) // hashes to the table of x
	f.Add("y", "10.20.0.0/16", "fd00::1", "", "eth0", "", "fd00:20::/64", "eth1", 1, 2, byte(3))
	f.Add("x", "0.0.0.0/0", "::1", "1.2.3.4", "a name too long for it", "10.0.0.0/8", "::ffff:1.2.3.4/128", "lo\n", 1<<32, -1, byte(2))
	f.Add("", "10.20.0.1/16", "", "", "eth0", "", "10.20.0.0/16", "eth1", 1<<32-1, 1<<32, byte(5))
	scopes := []netv1beta1.RouteScope{"", netv1beta1.ScopeGlobal, netv1beta1.ScopeLink, netv1beta1.ScopeHost, netv1beta1.ScopeSite, netv1beta1.ScopeNowhere}
	device := regexp.MustCompile(`^[^\s/"]{0,15}$`)
	f.Fuzz(func(t *testing.T, name, dst, gw, src, dev, from, to, in string, mark, priority int, flags byte) {
		route := netv1beta1.Route{Dst: dst, Gw: gw, Src: src, Dev: dev, Onlink: flags&1 != 0, Scope: scopes[int(flags/2)%len(scopes)]}
		other := netv1beta1.Route{Dst: to, Gw: gw, Dev: in}
		asked := []netv1beta1.RouteRule{
			{Src: from, Dst: to, Iif: in, Oif: dev, Fwmark: mark, Priority: priority, Routes: []netv1beta1.Route{route, other}},
			{Fwmark: priority, Priority: mark, Routes: []netv1beta1.Route{route}},
		}
		list := []*netv1beta1.RouteConfiguration{{}, {}}
		for i, name := range []string{"x", name} {
			list[i].ObjectMeta, list[i].Spec.Table = metav1.ObjectMeta{Namespace: "ns", Name: name}, &netv1beta1.RouteTable{Rules: asked}
		}
		if name == "x" {
			list = list[:1]
		}
		contents := routingTables(slices.Clone(list))
		slices.Reverse(list)
		if again := routingTables(list); !reflect.DeepEqual(again, contents) {
			t.Fatalf("the order matters:\n%+v\n%+v", contents, again)
		}
		owner := map[int]string{}
		for _, c := range contents {
			in := func(table int) {
				if was, taken := owner[table]; !IsUserTable(table) || taken && was != c.Name {
					t.Fatalf("%q writes into table %#x of %q", c.Name, table, was)
				}
				owner[table] = c.Name
			}
			for _, r := range c.Routes {
				in(r.Table)
				for _, a := range []netip.Addr{r.Via, r.Source} {
					if a.IsValid() && a.Is6() != r.To.Addr().Is6() {
						t.Fatalf("an address of another family in %s", r)
					}
				}
				if !device.MatchString(r.Device) || r.To != r.To.Masked() {
					t.Fatalf("no kernel has %q", r)
				}
			}
			for _, r := range c.Rules {
				in(r.Table)
				for _, p := range []netip.Prefix{r.From, r.To} {
					if p.IsValid() && p.Addr().Is6() != r.IPv6 {
						t.Fatalf("an address of another family in %s", r)
					}
				}
				if !device.MatchString(r.In) || !device.MatchString(r.Out) || r.Priority <= 0 || r.Priority > math.MaxUint32 {
					t.Fatalf("no kernel has %q", r)
				}
			}
			for i, x := range asked {
				named := func(what string) bool {
					return slices.ContainsFunc(c.Problems, func(p string) bool { return strings.HasPrefix(p, fmt.Sprintf("rule number %d: %s", i+1, what)) })
				}
				rule := func(r Rule) bool {
					return int(r.Mark) == x.Fwmark && r.Priority == cmp.Or(x.Priority, userPriority) && r.In == x.Iif && r.Out == x.Oif
				}
				if !slices.ContainsFunc(c.Rules, rule) && !named("") {
					t.Fatalf("rule %+v is lost in\n%v\n%q", x, c.Rules, c.Problems)
				}
				for _, y := range x.Routes {
					route := func(r Route) bool {
						to, _ := netip.ParsePrefix(y.Dst)
						return r.To == to.Masked() && r.Via == parseAddr(y.Gw) && r.Device == y.Dev && r.Source == parseAddr(y.Src)
					}
					if !slices.ContainsFunc(c.Routes, route) && !named("route to "+y.Dst) {
						t.Fatalf("route %+v is lost in\n%v\n%q", y, c.Routes, c.Problems)
					}
				}
			}
		}
		want := State{}.With(contents)
		if c := Diff(want, want); !c.Empty() {
			t.Fatalf("a state differs from itself:\n%s", c)
		}
	})
}
