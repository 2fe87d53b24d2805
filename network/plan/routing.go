// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"net/netip"
	"regexp"
	"slices"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

const (
	// UserTables is the first of 65536 routing tables for the routes of users: "lq" in ASCII.
	UserTables = 0x6c710000
	userTables = 1 << 16
	// userPriority is the default priority of users' rules. It comes just before Liqo's, so that
	// they can be exceptions.
	userPriority = RulePriority - 1
)

// IsUserTable reports whether a routing table is reserved for the routes of users.
func IsUserTable(number int) bool { return number >= UserTables && number < UserTables+userTables }

// IsOwnTable reports whether a routing table is Liqo's: the common one, or that of a further
// tunnel.
func IsOwnTable(number int) bool { return number >= RouteTable && number < RouteTable+api.MaxTunnels }

// routingTables assigns each RouteConfiguration a routing table. The number derives from its name, so
// that it stays the same; if two collide, the second one gets the next free number.
func routingTables(list []*netv1beta1.RouteConfiguration) []Content {
	slices.SortFunc(list, func(a, b *netv1beta1.RouteConfiguration) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	var out []Content
	taken := map[int]bool{}
	for _, r := range list {
		h := fnv.New32a()
		h.Write([]byte(r.Namespace + "/" + r.Name))
		number := int(h.Sum32() % userTables)
		for taken[number] {
			number = (number + 1) % userTables
		}
		taken[number] = true
		out = append(out, routing(r, UserTables+number))
	}
	return out
}

// routing plans the table of a RouteConfiguration.
func routing(r *netv1beta1.RouteConfiguration, table int) Content {
	c := Content{Resource: Routings, Namespace: r.Namespace, Name: r.Name}
	if r.Spec.Table == nil {
		return c
	}
	for i, x := range r.Spec.Table.Rules {
		failed := func(err error) { c.Problems = append(c.Problems, fmt.Sprintf("rule number %d: %v", i+1, err)) }
		var six []bool
		for _, y := range x.Routes {
			route, err := routeOf(y, table)
			if err == nil {
				err = c.fits(route)
			}
			if err != nil {
				failed(fmt.Errorf("route to %s: %w", y.Dst, err))
				continue
			}
			six = append(six, is6(route.To))
		}
		rules, err := rulesOf(x, table, six)
		if err != nil {
			failed(err)
		}
		for _, rule := range rules {
			if !slices.Contains(c.Rules, rule) {
				c.Rules = append(c.Rules, rule)
			}
		}
	}
	// A next hop may be reached by another route of the table, which must be written first.
	slices.SortStableFunc(c.Routes, func(a, b Route) int { return cmp.Compare(a.Via.BitLen(), b.Via.BitLen()) })
	return c
}

// fits adds a route. All rules of an object share one table, in which each destination has one
// route. It returns an error if the destination has another route.
func (c *Content) fits(r Route) error {
	i := slices.IndexFunc(c.Routes, func(x Route) bool { return x.key() == r.key() })
	switch {
	case i < 0:
		c.Routes = append(c.Routes, r)
	case c.Routes[i] != r:
		return errors.New("another rule of the table has another route there; use a second RouteConfiguration")
	}
	return nil
}

func routeOf(r netv1beta1.Route, table int) (Route, error) {
	to, err := parseCIDR(r.Dst)
	if err != nil || r.Dst == "" {
		return Route{}, fmt.Errorf("%q is no CIDR", r.Dst)
	}
	out := Route{Table: table, To: to, Device: r.Dev, OnLink: r.Onlink, Via: parseAddr(r.Gw), Source: parseAddr(r.Src)}
	for _, x := range []struct {
		text string
		addr netip.Addr
	}{{r.Gw, out.Via}, {r.Src, out.Source}} {
		if x.text != "" && (!x.addr.IsValid() || x.addr.Is6() != is6(to)) {
			return Route{}, fmt.Errorf("%q is no address of the same family", x.text)
		}
	}
	if out.Device == "" && !out.Via.IsValid() {
		return Route{}, errors.New("it needs a next hop (gw) or a device (dev)")
	}
	if err := checkDevices(r.Dev); err != nil {
		return Route{}, err
	}
	if is6(to) {
		return out, nil // scopes are IPv4's
	}
	out.Scope = string(r.Scope)
	if r.Scope == "" && !out.Via.IsValid() {
		out.Scope = string(netv1beta1.ScopeLink)
	}
	if r.Scope == netv1beta1.ScopeGlobal {
		out.Scope = ""
	}
	return out, nil
}

// rulesOf returns the rules for a table, for the family of their addresses, or without addresses
// for the families of the routes.
func rulesOf(r netv1beta1.RouteRule, table int, six []bool) ([]Rule, error) {
	if r.Priority < 0 || r.Fwmark < 0 || max(r.Priority, r.Fwmark) > math.MaxUint32 {
		return nil, errors.New("priority and fwmark are numbers from 0 to 4294967295")
	}
	base := Rule{Table: table, Priority: cmp.Or(r.Priority, userPriority), In: r.Iif, Out: r.Oif,
		Mark: uint32(r.Fwmark)}
	err := checkDevices(r.Iif, r.Oif)
	if err != nil {
		return nil, err
	}
	if base.From, err = parseCIDR(r.Src); err != nil {
		return nil, err
	}
	if base.To, err = parseCIDR(r.Dst); err != nil {
		return nil, err
	}
	switch {
	case base.From.IsValid() && base.To.IsValid() && is6(base.From) != is6(base.To):
		return nil, fmt.Errorf("src %s and dst %s are not of the same family", r.Src, r.Dst)
	case base.From.IsValid():
		six = []bool{is6(base.From)}
	case base.To.IsValid():
		six = []bool{is6(base.To)}
	}
	for _, p := range []*netip.Prefix{&base.From, &base.To} {
		if p.Bits() == 0 {
			*p = netip.Prefix{} // as the kernel says it
		}
	}
	var out []Rule
	for _, f := range []bool{false, true} {
		if slices.Contains(six, f) {
			rule := base
			rule.IPv6 = f
			out = append(out, rule)
		}
	}
	return out, nil
}

// checkDevices returns an error unless all names are valid device names or empty.
func checkDevices(names ...string) error {
	for _, name := range names {
		if !regexp.MustCompile(`^[^\s/"]{0,15}$`).MatchString(name) {
			return fmt.Errorf("%q is no name of a device", name)
		}
	}
	return nil
}

// parseCIDR parses a CIDR; for "" it returns the zero value.
func parseCIDR(text string) (netip.Prefix, error) {
	if text == "" {
		return netip.Prefix{}, nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is no CIDR", text)
	}
	return p.Masked(), nil
}
