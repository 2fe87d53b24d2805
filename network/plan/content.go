// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// Host is a node or a gateway that applies the rules users wrote.
type Host struct {
	// Category is api.CategoryGateway or api.CategoryFabric.
	Category string
	// Names are the names of this host in objects that are for a single host.
	Names []string
}

// Content holds the kernel configuration that one object of a user requests for a host. It has an
// nft table or a routing table of its own, so it cannot change Liqo's or prevent its update.
type Content struct {
	// Resource, Namespace and Name identify the object.
	Resource, Namespace, Name string
	Tables                    []Table
	Rules                     []Rule
	Routes                    []Route
	// Tracks reports whether its tables use connection tracking, also for connections between pods.
	Tracks bool
	// Problems name the parts that are left out, with the reason; the rest is applied.
	Problems []string
}

// Track reports whether any content uses connection tracking.
func Track(contents []Content) bool {
	return slices.ContainsFunc(contents, func(c Content) bool { return c.Tracks })
}

// Resources of contents.
const (
	Firewalls = "firewallconfigurations"
	Routings  = "routeconfigurations"
)

// Contents returns the content of all objects whose labels select the host.
func (h Host) Contents(firewalls []*netv1beta1.FirewallConfiguration,
	routings []*netv1beta1.RouteConfiguration) []Content {
	var out []Content
	for _, f := range selected(firewalls, func(f *netv1beta1.FirewallConfiguration) bool {
		return h.matches(f.Labels[api.LabelFirewallCategory], f.Labels[api.LabelFirewallSubcategory],
			f.Labels[api.LabelFirewallUnique])
	}) {
		out = append(out, firewall(f))
	}
	return append(out, routingTables(selected(routings, func(r *netv1beta1.RouteConfiguration) bool {
		return h.matches(r.Labels[api.LabelRouteCategory], r.Labels[api.LabelRouteSubcategory],
			r.Labels[api.LabelRouteUnique])
	}))...)
}

// selected returns the selected objects that are not being deleted.
func selected[P metav1.Object](list []P, is func(P) bool) []P {
	return slices.DeleteFunc(undeleted(list), func(x P) bool { return !is(x) })
}

// matches reports whether labels select the host. Subcategories formerly distinguished processes of one
// host; here they only belong to a category.
func (h Host) matches(category, subcategory, unique string) bool {
	known := []string{"", api.SubcategoryFabric, api.SubcategoryIPMapping}
	switch h.Category {
	case api.CategoryGateway:
		known = append(known, api.SubcategoryAllGateways)
	case api.CategoryFabric:
		known = append(known, api.SubcategoryFabricNode, api.SubcategoryAllNodes, api.SubcategorySingleNode)
	}
	if category != h.Category || !slices.Contains(known, subcategory) {
		return false
	}
	return unique == "" && subcategory != api.SubcategorySingleNode || slices.Contains(h.Names, unique)
}

// With adds contents to what is wanted.
func (s State) With(contents []Content) State {
	for _, c := range contents {
		s.Tables = append(s.Tables, c.Tables...)
		s.Rules = append(s.Rules, c.Rules...)
		s.Routes = append(s.Routes, c.Routes...)
	}
	return s
}
