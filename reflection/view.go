// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/reflection/translate"
)

// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespacemaps;virtualnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=ips;networks,verbs=get;list;watch
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch

// viewer computes Views from the objects that describe the peering: the namespaces at the provider,
// its virtual nodes, and the addresses exchanged with it.
type viewer struct {
	Options
	cache   cache.Cache
	changed chan struct{}  // holds a value after a change; its capacity is one, so that a burst gives one view
	former  translate.View // the last one passed to see
	own     bool           // whether the objects that ownAddresses reads are watched
	home    client.Reader  // asks the API server itself
	trusts  atomic.Bool    // whether ClusterTrustBundles are wanted and watched
}

// newViewer watches the tenant namespace and the addresses of the API server and, for the pods of
// further providers, the virtual nodes and networks of all tenants.
func newViewer(ctx context.Context, home *remote.Cluster, o Options) (*viewer, error) {
	c, err := home.NewCache(cache.Options{
		ByObject: map[client.Object]cache.ByObject{
			&offv1beta1.NamespaceMap{}: {Namespaces: map[string]cache.Config{o.TenantNamespace: {}}},
			&ipamv1alpha1.IP{}: {
				Namespaces: map[string]cache.Config{o.LiqoNamespace: {}},
				Label:      labels.SelectorFromSet(labels.Set{api.LabelIPType: api.IPTypeAPIServer}),
			},
			&corev1.Node{}: {Transform: onlyAddresses},
			&discoveryv1.EndpointSlice{}: {
				Namespaces: map[string]cache.Config{metav1.NamespaceDefault: {}},
				Label:      labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: "kubernetes"}),
			},
			&ipamv1alpha1.Network{}: {
				Namespaces: map[string]cache.Config{o.LiqoNamespace: {}},
				Label:      labels.SelectorFromSet(labels.Set{api.LabelNetworkType: api.NetworkTypeServiceCIDR}),
			},
		},
		DefaultTransform:             cache.TransformStripManagedFields(),
		DefaultUnsafeDisableDeepCopy: new(true),
	})
	if err != nil {
		return nil, err
	}
	v := &viewer{Options: o, cache: c, changed: make(chan struct{}, 1), home: home}
	return v, v.watch(ctx,
		&offv1beta1.NamespaceMap{}, &offv1beta1.VirtualNode{}, &netv1beta1.Configuration{}, &ipamv1alpha1.IP{})
}

// watch wakes the viewer when an object of these kinds changes. Updates of a Node that change no
// address are ignored.
func (v *viewer) watch(ctx context.Context, kinds ...client.Object) error {
	changed := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { v.wake() },
		UpdateFunc: func(before, after any) {
			node, isNode := before.(*corev1.Node)
			if !isNode || !slices.Equal(nodeAddresses(node), nodeAddresses(after.(*corev1.Node))) {
				v.wake()
			}
		},
		DeleteFunc: func(any) { v.wake() },
	}
	for _, kind := range kinds {
		informer, err := v.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(changed); err != nil {
			return fmt.Errorf("watch %T: %w", kind, err)
		}
	}
	return nil
}

func (v *viewer) wake() {
	select {
	case v.changed <- struct{}{}:
	default:
	}
}

// run calls see with every new view, until ctx ends. The cache must have synced.
func (v *viewer) run(ctx context.Context, see func(context.Context, translate.View) error) error {
	for {
		view, err := v.view(ctx)
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(v.former, view) {
			if err := see(ctx, view); err != nil {
				return err
			}
			v.former = view
		}
		select {
		case <-v.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// view reads the caches. Missing objects are left out. A NamespaceMap that a user deletes is
// created again, and the provider answers it again: until then namespaces keep their mapping.
func (v *viewer) view(ctx context.Context) (translate.View, error) {
	out := translate.View{
		Consumer:     v.Consumer,
		Provider:     v.Provider,
		Node:         v.Node,
		HomePods:     v.LocalPodCIDRs,
		PeerPods:     v.PeerPods,
		HideIPs:      v.DisableIPReflection,
		RuntimeClass: v.RuntimeClass,
		HostIP:       v.PodIP,
		APIServer: translate.APIServer{
			Host: v.HomeAPIServerHost, Port: v.HomeAPIServerPort,
			ClusterDomain: v.ClusterDomain, Unsupported: v.DisableAPIServerSupport,
		},
		LabelsDropped:      v.LabelsNotReflected,
		AnnotationsDropped: v.AnnotationsNotReflected,
		IngressClass:       v.IngressClass,
		LoadBalancerClass:  v.LoadBalancerClass,
		ProviderNodes:      map[string]bool{v.Node: true},
		OtherNodes:         map[string]string{},
		OtherPods:          map[string]netv1beta1.Mappings{},
		Namespaces:         map[string]string{},
		Ending:             map[string]bool{},
		Unanswered:         map[string]bool{},
	}
	for _, part := range []func(context.Context, *translate.View) error{
		v.namespaces, v.nodes, v.addresses, v.apiServer, v.ownAddresses, v.trust,
	} {
		if err := part(ctx, &out); err != nil {
			return out, err
		}
	}
	return out, nil
}

func (v *viewer) namespaces(ctx context.Context, out *translate.View) error {
	var maps offv1beta1.NamespaceMapList
	if err := v.cache.List(ctx, &maps, client.InNamespace(v.TenantNamespace)); err != nil {
		return fmt.Errorf("list namespace maps: %w", err)
	}
	key := types.NamespacedName{Namespace: v.TenantNamespace, Name: v.Node}
	node, err := ctl.Optional(ctx, v.cache, key, &offv1beta1.VirtualNode{})
	if err != nil {
		return err
	}
	out.NoMap = node != nil // a virtual node, even one being deleted, has the map made again
	for _, m := range maps.Items {
		if m.Labels[api.LabelReplicated] == api.True {
			continue // the peer's own, if it also consumes from this cluster
		}
		out.NoMap = false
		for home := range m.Spec.DesiredMapping {
			switch remote, answered := m.Status.CurrentMapping[home]; {
			case !answered:
				out.Unanswered[home] = true
			case remote.Phase == offv1beta1.NamespaceAccepted:
				out.Namespaces[home] = remote.RemoteNamespace
			}
		}
		for home := range strings.SplitSeq(m.Annotations[api.AnnotationEndingNamespaces], ",") {
			if remote := m.Status.CurrentMapping[home]; remote.Exists() && m.Spec.DesiredMapping[home] == "" {
				out.Namespaces[home], out.Ending[home] = remote.RemoteNamespace, true
			}
		}
	}
	for home, remote := range v.former.Namespaces {
		if out.NoMap || out.Unanswered[home] {
			out.Namespaces[home] = remote
			if v.former.Ending[home] {
				out.Ending[home] = true
			}
		}
	}
	return nil
}

func (v *viewer) nodes(ctx context.Context, out *translate.View) error {
	var nodes offv1beta1.VirtualNodeList
	if err := v.cache.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list virtual nodes: %w", err)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		if n.Spec.ClusterID != v.Provider {
			out.OtherNodes[n.Name] = n.Spec.ClusterID
			continue
		}
		if n.Namespace != v.TenantNamespace {
			continue
		}
		out.ProviderNodes[n.Name] = true
		if n.Name != v.Node {
			continue
		}
		out.System = n.Spec.Labels[corev1.LabelOSStable]
		if n.Spec.OffloadingPatch != nil {
			out.Patch = *n.Spec.OffloadingPatch
		}
		for _, class := range n.Spec.IngressClasses {
			if class.Default && out.IngressClass == "" {
				out.IngressClass = class.IngressClassName
			}
		}
		for i, class := range n.Spec.StorageClasses {
			if i == 0 {
				out.StorageClass = new("")
			}
			if class.Default {
				out.StorageClass = new(class.StorageClassName)
			}
		}
		for _, class := range n.Spec.LoadBalancerClasses {
			if class.Default && out.LoadBalancerClass == "" {
				out.LoadBalancerClass = class.LoadBalancerClassName
			}
		}
	}
	return nil
}

// addresses reads how this cluster maps the pod CIDRs of the provider and of further providers: the
// clusters in OtherNodes. It ignores the Configurations of other peers. There may be thousands of them,
// and each changed view triggers a reconcile of all reflected objects.
func (v *viewer) addresses(ctx context.Context, out *translate.View) error {
	var configurations netv1beta1.ConfigurationList
	if err := v.cache.List(ctx, &configurations, client.HasLabels{api.LabelRemoteClusterID}); err != nil {
		return fmt.Errorf("list configurations: %w", err)
	}
	providers := slices.Collect(maps.Values(out.OtherNodes))
	configurations.Items = slices.DeleteFunc(configurations.Items, func(c netv1beta1.Configuration) bool {
		id := c.Labels[api.LabelRemoteClusterID]
		return id != v.Provider && !slices.Contains(providers, id)
	})
	slices.SortFunc(configurations.Items, func(a, b netv1beta1.Configuration) int { // for equal views
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	for _, c := range configurations.Items {
		id := c.Labels[api.LabelRemoteClusterID]
		if id == v.Provider && c.Namespace != v.TenantNamespace {
			continue
		}
		out.Networked = out.Networked || id == v.Provider
		if len(out.HomePods) == 0 && c.Spec.Local != nil && id == v.Provider {
			out.HomePods = netv1beta1.ParseRanges(c.Spec.Local.CIDR.Pod...)
		}
		switch mappings := c.PodMappings(); {
		case len(mappings) == 0:
		case id != v.Provider:
			out.OtherPods[id] = append(out.OtherPods[id], mappings...)
		case len(v.Options.PeerPods) == 0:
			out.PeerPods = append(out.PeerPods, mappings...)
		}
	}
	return nil
}

// apiServer reads the addresses by which peers reach the local API server: that of its Service, or
// those of its endpoints. A pod can use only one port, so endpoints with another port than the
// first are left out.
func (v *viewer) apiServer(ctx context.Context, out *translate.View) error {
	var ips ipamv1alpha1.IPList
	if err := v.cache.List(ctx, &ips); err != nil {
		return fmt.Errorf("list ips in %s: %w", v.LiqoNamespace, err)
	}
	slices.SortFunc(ips.Items, func(a, b ipamv1alpha1.IP) int { return strings.Compare(a.Name, b.Name) })
	port := ""
	for _, ip := range ips.Items {
		addr, err := netip.ParseAddr(ip.Status.IP)
		if err != nil || ip.DeletionTimestamp != nil {
			continue // it has no address yet, or loses it
		}
		if len(out.APIServer.Addrs) == 0 {
			port = ip.Annotations[api.AnnotationPort]
		}
		if ip.Annotations[api.AnnotationPort] == port {
			out.APIServer.Addrs = append(out.APIServer.Addrs, addr)
		}
	}
	if v.HomeAPIServerHost == "" && v.HomeAPIServerPort == "" {
		out.APIServer.Port = port
	}
	return nil
}

// ownAddresses reads the addresses of this cluster's nodes, API server and Services, but not its
// pod CIDRs: clusters without Liqo's network may share one. With a network to the provider nothing
// is read or watched, since there may be thousands of nodes.
func (v *viewer) ownAddresses(ctx context.Context, out *translate.View) error {
	if out.Networked || len(out.PeerPods) > 0 || out.HideIPs {
		return nil
	}
	if !v.own {
		if err := v.watch(ctx, &corev1.Node{}, &discoveryv1.EndpointSlice{}, &ipamv1alpha1.Network{}); err != nil {
			return err
		}
		v.own = true
	}
	var nodes corev1.NodeList
	var servers discoveryv1.EndpointSliceList
	var services ipamv1alpha1.NetworkList
	for _, list := range []client.ObjectList{&nodes, &servers, &services} {
		if err := v.cache.List(ctx, list); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
	}
	for i := range nodes.Items {
		out.Own = append(out.Own, netv1beta1.ParseHosts(nodeAddresses(&nodes.Items[i])...)...)
	}
	for _, s := range servers.Items {
		for _, e := range s.Endpoints {
			out.Own = append(out.Own, netv1beta1.ParseHosts(e.Addresses...)...)
		}
	}
	for _, n := range services.Items {
		out.Own = append(out.Own, netv1beta1.ParseRanges(n.Spec.CIDR)...)
	}
	slices.SortFunc(out.Own, netip.Prefix.Compare)
	out.Own = slices.Compact(out.Own)
	return nil
}

// +kubebuilder:rbac:groups=certificates.k8s.io,resources=clustertrustbundles,verbs=get;list;watch

// errNoTrust reports that the home cluster serves no ClusterTrustBundles.
var errNoTrust = errors.New("the pod projects ClusterTrustBundles, and this cluster does not serve them as " +
	"certificates.k8s.io/v1; upgrade it to Kubernetes 1.37, or remove the projection")

// wantTrust has the ClusterTrustBundles watched and put into the views. Clusters before 1.37 do not
// serve them, and few pods read one, so this waits for the first pod that does.
func (v *viewer) wantTrust(ctx context.Context) error {
	if v.trusts.Load() {
		return nil
	}
	err := v.home.List(ctx, &certificatesv1.ClusterTrustBundleList{}, client.Limit(1))
	switch {
	case apierrors.IsNotFound(err):
		return errNoTrust
	case err != nil:
		return fmt.Errorf("list ClusterTrustBundles: %w", err)
	}
	if v.trusts.CompareAndSwap(false, true) {
		v.wake() // there may be none
		return v.watch(ctx, &certificatesv1.ClusterTrustBundle{})
	}
	return nil
}

func (v *viewer) trust(ctx context.Context, out *translate.View) error {
	if !v.trusts.Load() {
		return nil
	}
	var bundles certificatesv1.ClusterTrustBundleList
	if err := v.cache.List(ctx, &bundles); err != nil {
		return fmt.Errorf("list ClusterTrustBundles: %w", err)
	}
	out.Trust = append([]certificatesv1.ClusterTrustBundle{}, bundles.Items...) // never nil
	slices.SortFunc(out.Trust, func(a, b certificatesv1.ClusterTrustBundle) int {
		return strings.Compare(a.Name, b.Name)
	})
	return nil
}

// nodeAddresses returns the addresses in a Node's status, and the first address of each of its pod
// CIDRs, where most CNI plugins put the node's gateway.
func nodeAddresses(n *corev1.Node) (out []string) {
	for _, address := range n.Status.Addresses {
		out = append(out, address.Address)
	}
	for _, pods := range netv1beta1.ParseRanges(n.Spec.PodCIDRs...) {
		out = append(out, pods.Addr().Next().String())
	}
	return out
}

// onlyAddresses removes all of a Node except its addresses. The cache holds every Node, and a Node
// may take 30 KB, mostly names of images.
func onlyAddresses(obj any) (any, error) {
	n, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, ResourceVersion: n.ResourceVersion},
		Spec:       corev1.NodeSpec{PodCIDRs: n.Spec.PodCIDRs},
		Status:     corev1.NodeStatus{Addresses: n.Status.Addresses},
	}, nil
}
