// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups=offloading.liqo.io,resources=shadowendpointslices,verbs=get;list;watch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=shadowendpointslices/finalizers,verbs=update
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices/restricted,verbs=create;update
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations;connections,verbs=get;list;watch
// +kubebuilder:rbac:groups=core.liqo.io,resources=foreignclusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces;nodes;pods,verbs=get;list;watch

// shadowEndpointSlice creates, as provider, the endpoint slices of ShadowEndpointSlices.
func shadowEndpointSlice(o Options) ctl.Registrar {
	return ctl.Controller[*offloadingv1beta1.ShadowEndpointSlice, plan.ShadowEndpointSliceInput]{
		Name: "shadowendpointslice",
		Owns: []client.Object{&discoveryv1.EndpointSlice{}},
		Watches: []ctl.Watch{
			{Kind: &networkingv1beta1.Configuration{}, Map: slicesAddressed},
			{Kind: &networkingv1beta1.Connection{}, Map: slicesFrom},
			{Kind: &corev1beta1.ForeignCluster{}, Map: slicesFrom},
			{Kind: &corev1.Pod{}, Map: slicesNaming, Relevant: ctl.Differs(addressesDiffer)},
			{
				Kind: &corev1.Node{}, Map: ctl.All(&offloadingv1beta1.ShadowEndpointSliceList{}),
				Relevant: ctl.Differs(api.NodeAddressesDiffer),
			},
		},
		Workers: cmp.Or(o.ShadowEndpointSliceWorkers, defaultWorkers),
		Gather: func(ctx context.Context, r ctl.Reader,
			root *offloadingv1beta1.ShadowEndpointSlice) (plan.ShadowEndpointSliceInput, error) {
			return gatherShadowEndpointSlice(ctx, r, root, o)
		},
		Plan: plan.ShadowEndpointSlice,
	}
}

func gatherShadowEndpointSlice(
	ctx context.Context, r ctl.Reader, root *offloadingv1beta1.ShadowEndpointSlice, o Options,
) (plan.ShadowEndpointSliceInput, error) {
	in := plan.ShadowEndpointSliceInput{
		Root: root, DenyDirect: o.DenyDirectConnections, Configurations: map[string]networkingv1beta1.Configuration{},
	}
	var err error
	if in.Origin, err = originOf(ctx, r, root.Namespace); err != nil {
		return in, err
	}
	var configurations networkingv1beta1.ConfigurationList
	if err := r.List(ctx, &configurations); err != nil {
		return in, fmt.Errorf("list configurations: %w", err)
	}
	for _, c := range configurations.Items {
		if id := c.Labels[api.LabelRemoteClusterID]; id != "" {
			in.Configurations[id] = c
		}
	}
	fc, err := ctl.Optional(ctx, r, types.NamespacedName{Name: in.Origin}, &corev1beta1.ForeignCluster{})
	if err != nil {
		return in, err
	}
	in.Networked = fc != nil && fc.Status.Modules != nil && fc.Status.Modules.Networking.Enabled
	if in.Down, err = peerDown(ctx, r, in.Origin, fc); err != nil {
		return in, err
	}
	if in.Own, err = ownAddresses(ctx, r, o.Kubelet.LiqoNamespace); err != nil {
		return in, err
	}
	in.Pods, err = nodesOf(ctx, r, in.Origin, plan.ProviderAddresses(root))
	return in, err
}

const (
	// fieldPodAddress indexes pods by the addresses that addressesOf returns.
	fieldPodAddress = "podAddress"
	// fieldProviderAddress indexes ShadowEndpointSlices by plan.ProviderAddresses.
	fieldProviderAddress = "providerAddress"
)

func podsByAddress() ctl.Registrar {
	return ctl.Index{Kind: &corev1.Pod{}, Field: fieldPodAddress, Of: func(obj client.Object) []string {
		return texts(addressesOf(obj.(*corev1.Pod)))
	}}
}

func slicesByProviderAddress() ctl.Registrar {
	addresses := func(obj client.Object) []string {
		return texts(plan.ProviderAddresses(obj.(*offloadingv1beta1.ShadowEndpointSlice)))
	}
	return ctl.Index{Kind: &offloadingv1beta1.ShadowEndpointSlice{}, Field: fieldProviderAddress, Of: addresses}
}

func texts(addresses []netip.Addr) (out []string) {
	for _, address := range addresses {
		out = append(out, address.String())
	}
	return out
}

// nodesOf returns the nodes of the consumer's pods in this cluster that have one of the addresses.
func nodesOf(
	ctx context.Context, r client.Reader, consumer string, addresses []netip.Addr,
) (map[netip.Addr]string, error) {
	if len(addresses) == 0 {
		return nil, nil
	}
	namespaces, err := namespacesFor(ctx, r, consumer)
	if err != nil {
		return nil, err
	}
	out := map[netip.Addr]string{}
	for _, address := range addresses {
		var pods corev1.PodList
		at := client.MatchingFields{fieldPodAddress: address.String()}
		if err := r.List(ctx, &pods, at, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list pods with address %s: %w", address, err)
		}
		for i := range pods.Items {
			if pod := &pods.Items[i]; namespaces[pod.Namespace] {
				out[address] = pod.Spec.NodeName
			}
		}
	}
	return out, nil
}

// namespacesFor returns the names of the namespaces created for a consumer, without its tenant
// namespace.
func namespacesFor(ctx context.Context, r client.Reader, consumer string) (map[string]bool, error) {
	var namespaces corev1.NamespaceList
	of := client.MatchingLabels{api.LabelRemoteClusterID: consumer}
	if err := r.List(ctx, &namespaces, of, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list namespaces of %s: %w", consumer, err)
	}
	out := map[string]bool{}
	for i := range namespaces.Items {
		if ns := &namespaces.Items[i]; plan.MadeForConsumer(ns) {
			out[ns.Name] = true
		}
	}
	return out, nil
}

// addressesOf returns the addresses of a pod that was created for a ShadowPod. It returns none for
// other pods, for finished ones, and for those that use the host's network.
func addressesOf(pod *corev1.Pod) (out []netip.Addr) {
	if pod.Labels[api.LabelManagedBy] != api.ManagedByShadowPod || pod.Spec.HostNetwork ||
		api.Finished(pod.Status.Phase) {
		return nil
	}
	for _, ip := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil {
			out = append(out, address)
		}
	}
	return out
}

// addressesDiffer reports whether an update changes the addresses of a pod.
func addressesDiffer(before, after *corev1.Pod) bool {
	return !slices.Equal(addressesOf(before), addressesOf(after))
}

// ownAddresses returns the addresses of this cluster's nodes and the range of its Services.
func ownAddresses(ctx context.Context, r client.Reader, liqoNamespace string) (networkingv1beta1.Ranges, error) {
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var own networkingv1beta1.Ranges
	for _, node := range nodes.Items {
		for _, each := range node.Status.Addresses {
			own = append(own, networkingv1beta1.ParseHosts(each.Address)...)
		}
	}
	var networks ipamv1alpha1.NetworkList
	if err := r.List(ctx, &networks, client.InNamespace(liqoNamespace)); err != nil {
		return nil, fmt.Errorf("list networks: %w", err)
	}
	for _, network := range networks.Items {
		ofServices := network.Labels[api.LabelNetworkType] == api.NetworkTypeServiceCIDR
		if ofServices || network.Name == api.NetworkServiceCIDR {
			own = append(own, networkingv1beta1.ParseRanges(network.Spec.CIDR)...)
		}
	}
	return own, nil
}

// peerDown reports whether the tunnel to a peer is not connected, or its API server is known not to
// answer. fc is the peer's ForeignCluster; nil = nothing is known of the API server.
func peerDown(ctx context.Context, r client.Reader, peer string, fc *corev1beta1.ForeignCluster) (bool, error) {
	var connections networkingv1beta1.ConnectionList
	if err := r.List(ctx, &connections, client.MatchingLabels{api.LabelRemoteClusterID: peer}); err != nil {
		return false, fmt.Errorf("list connections to %s: %w", peer, err)
	}
	for i := range connections.Items {
		if connections.Items[i].Status.Value != networkingv1beta1.Connected {
			return true, nil
		}
	}
	return fc != nil && slices.ContainsFunc(fc.Status.Conditions, func(c corev1beta1.Condition) bool {
		return c.Type == corev1beta1.APIServerStatusCondition && c.Status == corev1beta1.ConditionError
	}), nil
}

// slicesFrom returns the ShadowEndpointSlices in the namespaces of the peer that a changed object
// is about.
func slicesFrom(ctx context.Context, r client.Reader, obj client.Object) (requests []reconcile.Request) {
	peer := obj.GetLabels()[api.LabelRemoteClusterID]
	if fc, ok := obj.(*corev1beta1.ForeignCluster); ok {
		peer = fc.Spec.ClusterID
	}
	var namespaces corev1.NamespaceList
	if peer == "" || r.List(ctx, &namespaces, client.MatchingLabels{api.LabelRemoteClusterID: peer}) != nil {
		return nil
	}
	for _, ns := range namespaces.Items {
		inNamespace := ctl.All(&offloadingv1beta1.ShadowEndpointSliceList{}, client.InNamespace(ns.Name))
		requests = append(requests, inNamespace(ctx, r, obj)...)
	}
	return requests
}

// slicesAddressed returns the ShadowEndpointSlices whose addresses a changed Configuration may
// remap: those of its peer, and those with pods of third clusters.
func slicesAddressed(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
	hasDirect := func(_ client.Object, root *offloadingv1beta1.ShadowEndpointSlice) bool {
		_, direct := root.Annotations[api.AnnotationDirectConnectionsData]
		return direct
	}
	direct := ctl.Where(&offloadingv1beta1.ShadowEndpointSliceList{}, hasDirect)
	return append(slicesFrom(ctx, r, obj), direct(ctx, r, obj)...)
}

// slicesNaming returns the ShadowEndpointSlices of a pod's consumer that contain an address of the
// pod. It is called with the pod before and after an update.
func slicesNaming(ctx context.Context, r client.Reader, obj client.Object) (requests []reconcile.Request) {
	for _, address := range addressesOf(obj.(*corev1.Pod)) {
		at := client.MatchingFields{fieldProviderAddress: address.String()}
		naming := ctl.All(&offloadingv1beta1.ShadowEndpointSliceList{}, at)
		requests = append(requests, naming(ctx, r, obj)...)
	}
	if len(requests) == 0 {
		return nil
	}
	consumer, err := originOf(ctx, r, obj.GetNamespace())
	if err != nil || consumer == "" {
		return nil
	}
	namespaces, err := namespacesFor(ctx, r, consumer)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(requests, func(r reconcile.Request) bool { return !namespaces[r.Namespace] })
}
