// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// Host is one that carries what users wrote: a node, or a gateway.
type Host struct {
	// Category is api.CategoryGateway or api.CategoryFabric.
	Category string
	// Names are those by which an object that is for one host only may call this one.
	Names []string
}

// Content is what one object of a user wants in the kernel of a host. It lies in an nft table or a
// routing table of its own, so it can neither change ours nor keep it from being written.
type Content struct {
	// Resource, Namespace and Name are the object's.
	Resource, Namespace, Name string
	Tables                    []Table
	Rules                     []Rule
	Routes                    []Route
	// Tracks tells that its tables speak of connections, also of those between pods.
	Tracks bool
	// Problems name what is left out and say why; the rest acts.
	Problems []string
}

// Track tells whether some content speaks of connections.
func Track(contents []Content) bool {
	return slices.ContainsFunc(contents, func(c Content) bool { return c.Tracks })
}

// Resources of contents.
const (
	Firewalls = "firewallconfigurations"
	Routings  = "routeconfigurations"
)

// Contents are those of all objects that choose the host by their labels.
func (h Host) Contents(firewalls []netv1beta1.FirewallConfiguration,
	routings []netv1beta1.RouteConfiguration) []Content {
	var out []Content
	for _, f := range chosen(firewalls, func(f *netv1beta1.FirewallConfiguration) bool {
		return h.is(f.Labels[api.LabelFirewallCategory], f.Labels[api.LabelFirewallSubcategory],
			f.Labels[api.LabelFirewallUnique])
	}) {
		out = append(out, firewall(f))
	}
	return append(out, routed(chosen(routings, func(r *netv1beta1.RouteConfiguration) bool {
		return h.is(r.Labels[api.LabelRouteCategory], r.Labels[api.LabelRouteSubcategory],
			r.Labels[api.LabelRouteUnique])
	}))...)
}

// chosen picks objects that are not being deleted.
func chosen[T any, P interface {
	*T
	metav1.Object
}](list []T, is func(*T) bool) []T {
	return slices.DeleteFunc(alive[T, P](list), func(x T) bool { return !is(&x) })
}

// is tells whether labels choose the host. Subcategories once told processes of one host apart,
// and here only which category they belong to.
func (h Host) is(category, subcategory, unique string) bool {
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
