// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/desired"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// +kubebuilder:rbac:groups=networking.liqo.io,resources=gatewayservers;gatewayclients,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=gatewayservers/status;gatewayclients/status,verbs=patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=wggatewayservers;wggatewayclients;internalfabrics,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=networking.liqo.io,resources=wggatewayservertemplates;wggatewayclienttemplates,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations;publickeies;internalnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.liqo.io,resources=networks,verbs=get;list;watch

// gatewayServer renders the templates of servers.
func (o Options) gatewayServer() ctl.Registrar {
	all := &netv1beta1.GatewayServerList{}
	var addresses assigned
	return ctl.Controller[*netv1beta1.GatewayServer, plan.GatewayServerInput]{
		Name: "gateway-server", EndsWithNamespace: []client.Object{},
		Owns: []client.Object{&netv1beta1.WgGatewayServer{}, &netv1beta1.InternalFabric{}},
		Watches: append(o.gatewayWatches(all),
			ctl.Watch{Kind: &netv1beta1.WgGatewayServerTemplate{}, Map: ctl.All(all)}),
		Gather: func(ctx context.Context, r ctl.Reader,
			root *netv1beta1.GatewayServer) (plan.GatewayServerInput, error) {
			in, err := o.gatewayInput(ctx, r, root, &addresses, plan.ServerTemplate(root, o.LiqoNamespace),
				root.Status.ServerRef)
			return plan.GatewayServerInput{Root: root, GatewayInput: in}, err
		},
		Plan: func(in plan.GatewayServerInput) desired.Plan { return addresses.record(plan.GatewayServer(in)) },
	}
}

// gatewayClient renders the templates of clients.
func (o Options) gatewayClient() ctl.Registrar {
	all := &netv1beta1.GatewayClientList{}
	var addresses assigned
	return ctl.Controller[*netv1beta1.GatewayClient, plan.GatewayClientInput]{
		Name: "gateway-client", EndsWithNamespace: []client.Object{},
		Owns: []client.Object{&netv1beta1.WgGatewayClient{}, &netv1beta1.InternalFabric{}},
		Watches: append(o.gatewayWatches(all),
			ctl.Watch{Kind: &netv1beta1.WgGatewayClientTemplate{}, Map: ctl.All(all)}),
		Gather: func(ctx context.Context, r ctl.Reader,
			root *netv1beta1.GatewayClient) (plan.GatewayClientInput, error) {
			in, err := o.gatewayInput(ctx, r, root, &addresses, plan.ClientTemplate(root, o.LiqoNamespace),
				root.Status.ClientRef)
			return plan.GatewayClientInput{Root: root, GatewayInput: in}, err
		},
		Plan: func(in plan.GatewayClientInput) desired.Plan { return addresses.record(plan.GatewayClient(in)) },
	}
}

// gatewayWatches returns the watches that servers and clients have in common.
func (o Options) gatewayWatches(all client.ObjectList) []ctl.Watch {
	samePeer := ctl.SameLabel(all, api.LabelRemoteClusterID)
	return []ctl.Watch{
		{Kind: &netv1beta1.GatewayServer{}, Map: samePeer},
		{Kind: &netv1beta1.GatewayServer{}, Map: ctl.SameName},
		{Kind: &netv1beta1.GatewayClient{}, Map: samePeer},
		{Kind: &netv1beta1.GatewayClient{}, Map: ctl.SameName},
		{Kind: &netv1beta1.Configuration{}, Map: samePeer},
		{Kind: &netv1beta1.PublicKey{}, Map: samePeer},
		{Kind: &ipamv1alpha1.Network{}, Map: o.onOwnNetworks(ctl.All(all))},
	}
}

// gatewayInput reads the common input of servers and clients. before refers to the object that the
// gateway rendered last.
func (o Options) gatewayInput(ctx context.Context, r ctl.Reader, root client.Object, addresses *assigned,
	template corev1.ObjectReference, before *corev1.ObjectReference) (plan.GatewayInput, error) {
	var (
		configurations netv1beta1.ConfigurationList
		keys           netv1beta1.PublicKeyList
		networks       ipamv1alpha1.NetworkList
	)
	for _, l := range []client.ObjectList{&configurations, &keys} {
		if err := list(ctx, r, l, ofPeer(root)); err != nil {
			return plan.GatewayInput{}, err
		}
	}
	if err := list(ctx, r, &networks, client.InNamespace(o.LiqoNamespace)); err != nil {
		return plan.GatewayInput{}, err
	}
	in := plan.GatewayInput{
		Configurations: configurations.Items, PublicKeys: keys.Items, Networks: networks.Items,
		LiqoNamespace: o.LiqoNamespace,
	}
	var err error
	if in.Servers, in.Clients, err = rivals(ctx, r, root); err != nil {
		return in, err
	}
	in.Overlay, err = addresses.overlay(ctx, r, plan.FabricOf(root), in.Networks, o.LiqoNamespace)
	if err != nil {
		return in, err
	}
	if plan.OfGateways(template.APIVersion, template.Kind) {
		var refused bool
		if in.Template, refused, err = untyped(ctx, r.Live, template); err != nil {
			return in, err
		}
		if refused {
			in.Refused = template.Kind
		}
	}
	if in.Template != nil {
		apiVersion, kind := plan.RenderedKind(in.Template)
		if plan.OfGateways(apiVersion, kind) {
			err = readRendered(ctx, r, before, corev1.ObjectReference{
				APIVersion: apiVersion, Kind: kind, Namespace: root.GetNamespace(), Name: root.GetName(),
			}, &in)
			return in, err
		}
	}
	if before != nil && plan.OfGateways(before.APIVersion, before.Kind) {
		in.Rendered, _, err = untyped(ctx, r.Live, *before)
	}
	return in, err
}

// readRendered reads the rendered object. If the template's kind has changed, it also reads the
// object of the former kind.
func readRendered(ctx context.Context, r ctl.Reader, before *corev1.ObjectReference, ref corev1.ObjectReference,
	in *plan.GatewayInput) error {
	var err error
	var refused bool
	if in.Rendered, refused, err = untyped(ctx, r.Live, ref); err != nil {
		return err
	}
	if refused {
		in.Refused = ref.Kind
		return nil
	}
	if former, changed := plan.Former(before, in.Template); changed {
		in.Former, _, err = untyped(ctx, r.Live, former) // the rights may be gone with the template
	}
	return err
}

// rivals returns the gateways for the same peer, and those with the same name, which may be for
// another peer.
func rivals(ctx context.Context, r client.Reader, root client.Object) ([]netv1beta1.GatewayServer,
	[]netv1beta1.GatewayClient, error) {
	var servers netv1beta1.GatewayServerList
	var clients netv1beta1.GatewayClientList
	for _, l := range []client.ObjectList{&servers, &clients} {
		if err := list(ctx, r, l, ofPeer(root)); err != nil {
			return nil, nil, err
		}
	}
	key := client.ObjectKeyFromObject(root)
	server, err := ctl.Optional(ctx, r, key, &netv1beta1.GatewayServer{})
	if err != nil {
		return nil, nil, err
	}
	if server != nil {
		servers.Items = append(servers.Items, *server)
	}
	dialer, err := ctl.Optional(ctx, r, key, &netv1beta1.GatewayClient{})
	if err == nil && dialer != nil {
		clients.Items = append(clients.Items, *dialer)
	}
	return servers.Items, clients.Items, err
}

// untyped reads an object of any kind. It returns nil if the object does not exist, its kind is not
// installed, or the controller may not read it, which refused reports.
func untyped(ctx context.Context, r client.Reader, ref corev1.ObjectReference) (
	found *unstructured.Unstructured, refused bool, err error,
) {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(ref.APIVersion)
	u.SetKind(ref.Kind)
	found, err = ctl.Optional(ctx, r, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, u)
	switch refused = apierrors.IsForbidden(err); {
	case refused || meta.IsNoMatchError(err):
		return nil, refused, nil
	case err != nil:
		return nil, false, err
	}
	return found, false, nil
}
