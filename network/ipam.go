// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/internal/ledger"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=nodes;services,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=internalnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=list

// network grants CIDRs.
func (o Options) network() ctl.Registrar {
	var made grants
	all := ctl.All(&ipamv1alpha1.NetworkList{})
	return ctl.Controller[*ipamv1alpha1.Network, plan.NetworkInput]{
		Name: "network",
		Watches: []ctl.Watch{
			{Kind: &ipamv1alpha1.Network{}, Map: ctl.All(&ipamv1alpha1.NetworkList{}, withoutGrant)},
			{Kind: &corev1.Node{}, Map: all, Relevant: ctl.Differs(api.NodeAddressesDiffer)},
			{Kind: &netv1beta1.InternalNode{}, Map: all, Relevant: ctl.Differs(otherLocalAddresses)},
		},
		Gather: func(ctx context.Context, r ctl.Reader, root *ipamv1alpha1.Network) (in plan.NetworkInput, err error) {
			in = plan.NetworkInput{Root: root, Pools: o.Pools}
			if in.Local, err = nodeAddresses(ctx, r); err != nil || root.Status.CIDR != "" {
				return in, err
			}
			var networks ipamv1alpha1.NetworkList
			of := func(i int) (types.UID, *string) { return networks.Items[i].UID, &networks.Items[i].Status.CIDR }
			if err := made.list(ctx, r, root, &root.Status.CIDR, &networks, of); err != nil {
				return in, err
			}
			in.Networks = networks.Items
			servers, err := apiServerAddresses(ctx, r.Live)
			if err != nil {
				return in, err
			}
			services, err := serviceAddresses(ctx, r)
			in.Local = slices.Concat(in.Local, servers, services)
			return in, err
		},
		Plan: func(in plan.NetworkInput) desired.Plan { return made.record(in.Root, plan.Network(in)) },
	}
}

// grants holds the grants of one kind that this process made and the cache may not show yet. With
// them and the cache the only worker knows all grants. Otherwise it would have to list thousands of
// objects from the API server for each grant.
type grants struct {
	// late holds the grant of each object by its UID. Entries have no time limit, because an address
	// must not be granted twice.
	late ledger.Ledger[types.UID, string]
	// caughtUp reports whether the cache shows all grants of earlier processes.
	caughtUp bool
}

// record adds to the ledger what the plan grants to root, before it is written.
func (g *grants) record(root client.Object, p desired.Plan) desired.Plan {
	switch status := p.Status.(type) {
	case *ipamv1alpha1.Network:
		g.late.Begin(root.GetUID(), status.Status.CIDR)
	case *ipamv1alpha1.IP:
		g.late.Begin(root.GetUID(), status.Status.IP)
	}
	return p
}

// list reads all objects of the kind and adds the grants that the cache does not show yet, also to
// root. of returns the UID and grant of an object. Objects are shallow copies of the cache's.
func (g *grants) list(
	ctx context.Context, r ctl.Reader, root client.Object, granted *string,
	into client.ObjectList, of func(i int) (types.UID, *string),
) error {
	uid := root.GetUID()
	if _, again := g.late.Late(uid); again { // the write may have failed
		if _, err := ctl.Optional(ctx, r.Live, client.ObjectKeyFromObject(root), root); err != nil {
			return err
		}
		if root.GetUID() != uid {
			return fmt.Errorf("%s/%s is another one by now", root.GetNamespace(), root.GetName())
		}
		if g.late.End(uid); *granted != "" {
			g.late.Begin(uid, *granted) // the cache is still stale
		}
	}
	if err := list(ctx, r, into, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	late, shown := map[types.UID]bool{}, map[types.UID]bool{}
	for i := range meta.LenList(into) {
		uid, grant := of(i)
		if given, ours := g.late.Late(uid); ours && *grant == "" {
			late[uid], *grant = true, given
		}
		if !g.caughtUp {
			shown[uid] = *grant != ""
		}
	}
	g.late.Retain(late)
	if g.caughtUp {
		return nil
	}
	if err := list(ctx, r.Live, into); err != nil {
		return err
	}
	g.caughtUp = true
	for i := range meta.LenList(into) {
		uid, grant := of(i)
		if g.caughtUp = g.caughtUp && (*grant == "" || shown[uid]); uid == root.GetUID() {
			*granted = *grant
		}
	}
	return nil
}

// otherLocalAddresses reports whether a node depends on other addresses than before.
func otherLocalAddresses(before, after *netv1beta1.InternalNode) bool {
	return !slices.Equal(before.Status.LocalAddresses, after.Status.LocalAddresses)
}

// apiServerSlices returns the EndpointSlices of the cluster's API server.
func apiServerSlices(ctx context.Context, r client.Reader) ([]discoveryv1.EndpointSlice, error) {
	var found discoveryv1.EndpointSliceList
	of := client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"}
	err := list(ctx, r, &found, client.InNamespace(metav1.NamespaceDefault), of)
	return found.Items, err
}

// apiServerAddresses returns the addresses of the cluster's API server. They need not belong to
// nodes.
func apiServerAddresses(ctx context.Context, r client.Reader) (addrs []netip.Prefix, err error) {
	found, err := apiServerSlices(ctx, r)
	if err != nil {
		return nil, err
	}
	for _, s := range found {
		for _, e := range s.Endpoints {
			addrs = append(addrs, netv1beta1.ParseHosts(e.Addresses...)...)
		}
	}
	return addrs, nil
}

// serviceAddresses returns the addresses of the Services of the API server and of the DNS. They need
// not lie in the service CIDR of the chart's values.
func serviceAddresses(ctx context.Context, r client.Reader) (addrs []netip.Prefix, err error) {
	var dns corev1.ServiceList
	err = list(ctx, r, &dns, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"k8s-app": "kube-dns"})
	if err != nil {
		return nil, err
	}
	var server corev1.Service
	key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}
	if _, err := ctl.Optional(ctx, r, key, &server); err != nil {
		return nil, err
	}
	for _, s := range append(dns.Items, server) {
		addrs = append(addrs, netv1beta1.ParseHosts(s.Spec.ClusterIPs...)...)
	}
	return addrs, nil
}

// fieldGrant is the index of objects that wait for a grant; withoutGrant selects them.
const fieldGrant = "status.grant"

var withoutGrant = client.MatchingFields{fieldGrant: "missing"}

func byGrant(kind client.Object, granted func(client.Object) bool) ctl.Registrar {
	return ctl.Index{Kind: kind, Field: fieldGrant, Of: func(obj client.Object) []string {
		if granted(obj) {
			return nil
		}
		return []string{withoutGrant[fieldGrant]}
	}}
}

func networksByGrant() ctl.Registrar {
	return byGrant(&ipamv1alpha1.Network{}, func(obj client.Object) bool {
		return obj.(*ipamv1alpha1.Network).Status.CIDR != ""
	})
}

func ipsByGrant() ctl.Registrar {
	return byGrant(&ipamv1alpha1.IP{}, func(obj client.Object) bool { return obj.(*ipamv1alpha1.IP).Status.IP != "" })
}

// nodeAddresses returns all addresses of the cluster's own nodes, and those that nodes publish as
// needed.
func nodeAddresses(ctx context.Context, r client.Reader) ([]netip.Prefix, error) {
	var nodes corev1.NodeList
	var internal netv1beta1.InternalNodeList
	for _, l := range []client.ObjectList{&nodes, &internal} {
		if err := list(ctx, r, l, client.UnsafeDisableDeepCopy); err != nil {
			return nil, err
		}
	}
	var addrs []netip.Prefix
	for i := range nodes.Items {
		if nodes.Items[i].Labels[api.LabelType] == api.TypeVirtualNode {
			continue
		}
		for _, a := range nodes.Items[i].Status.Addresses {
			addrs = append(addrs, netv1beta1.ParseHosts(a.Address)...)
		}
	}
	for i := range internal.Items {
		for _, text := range internal.Items[i].Status.LocalAddresses {
			if p, err := netip.ParsePrefix(text); err == nil {
				addrs = append(addrs, p)
			}
		}
	}
	return addrs, nil
}

// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices/restricted,verbs=create

// ip grants single addresses, like network does CIDRs.
func (o Options) ip() ctl.Registrar {
	var made grants
	waiting := ctl.All(&ipamv1alpha1.IPList{}, withoutGrant)
	owns := []client.Object{&corev1.Service{}, &discoveryv1.EndpointSlice{}}
	return ctl.Controller[*ipamv1alpha1.IP, plan.IPInput]{
		Name:    "ip",
		Owns:    owns,
		Creates: owns, // users may have objects of the same name
		Watches: []ctl.Watch{
			{Kind: &ipamv1alpha1.Network{}, Map: waiting},
			{Kind: &ipamv1alpha1.IP{}, Map: waiting, Relevant: ctl.Comings}, // a deletion frees an address
		},
		Gather: func(ctx context.Context, r ctl.Reader, root *ipamv1alpha1.IP) (plan.IPInput, error) {
			in := plan.IPInput{Root: root, LiqoNamespace: o.LiqoNamespace}
			var networks ipamv1alpha1.NetworkList
			if err := list(ctx, r, &networks, client.UnsafeDisableDeepCopy); err != nil {
				return in, err
			}
			in.Networks = networks.Items
			if root.Status.IP != "" {
				return in, nil
			}
			var ips ipamv1alpha1.IPList
			of := func(i int) (types.UID, *string) { return ips.Items[i].UID, &ips.Items[i].Status.IP }
			if err := made.list(ctx, r, root, &root.Status.IP, &ips, of); err != nil {
				return in, err
			}
			in.IPs = ips.Items
			return in, nil
		},
		Plan: func(in plan.IPInput) desired.Plan { return made.record(in.Root, plan.IP(in)) },
	}
}

// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=virtualnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=tenants,verbs=get;list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch

// apiServerIP keeps the IPs of the API server and its proxy.
func (o Options) apiServerIP() ctl.Registrar {
	return ctl.Controller[*corev1.Service, plan.APIServerInput]{
		Name: "api-server-ip",
		Owns: []client.Object{&ipamv1alpha1.IP{}},
		Watches: []ctl.Watch{
			o.onUninstall(ctl.All(&corev1.ServiceList{})),
			{Kind: &offv1beta1.VirtualNode{}, Map: o.apiServices, Relevant: ctl.Differs(otherSpec)},
			{Kind: &authv1beta1.Tenant{}, Map: o.apiServices, Relevant: ctl.Differs(otherSpec)},
			{Kind: &discoveryv1.EndpointSlice{}, Map: ofAPIServer},
		},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.Service) (plan.APIServerInput, error) {
			in := plan.APIServerInput{
				Root: root, LiqoNamespace: o.LiqoNamespace, ThroughEndpoints: o.APIServerEndpoints, Now: time.Now(),
			}
			var err error
			proxy := client.ObjectKey{Namespace: o.LiqoNamespace, Name: api.IPAPIServerProxy}
			if in.ProxyIP, err = ctl.Optional(ctx, r, proxy, &ipamv1alpha1.IP{}); err != nil {
				return in, err
			}
			if in.Uninstalling, err = o.uninstalling(ctx, r); err != nil {
				return in, err
			}
			if in.Endpoints, err = apiServerSlices(ctx, r); err != nil {
				return in, err
			}
			var nodes offv1beta1.VirtualNodeList
			var tenants authv1beta1.TenantList
			for _, l := range []client.ObjectList{&nodes, &tenants} {
				if err := list(ctx, r, l); err != nil {
					return in, err
				}
			}
			for _, n := range nodes.Items {
				in.Providers = append(in.Providers, string(n.Spec.ClusterID))
			}
			for _, t := range tenants.Items {
				if t.Spec.ProxyURL != "" {
					in.InBand = append(in.InBand, string(t.Spec.ClusterID))
				}
			}
			return in, nil
		},
		Plan: plan.APIServerIP,
	}
}

// apiServices returns the Services of the API server and its proxy.
func (o Options) apiServices(context.Context, client.Reader, client.Object) []reconcile.Request {
	return []reconcile.Request{
		{NamespacedName: client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}},
		{NamespacedName: client.ObjectKey{Namespace: o.LiqoNamespace, Name: api.ProxyName}},
	}
}

// ofAPIServer maps an EndpointSlice of the API server to its Service.
func ofAPIServer(_ context.Context, _ client.Reader, slice client.Object) []reconcile.Request {
	service := client.ObjectKey{Namespace: slice.GetNamespace(), Name: slice.GetLabels()[discoveryv1.LabelServiceName]}
	if service.Namespace != metav1.NamespaceDefault || service.Name != "kubernetes" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: service}}
}

// otherSpec reports whether more than the status of an object changed.
func otherSpec(before, after client.Object) bool {
	return before.GetGeneration() != after.GetGeneration()
}
