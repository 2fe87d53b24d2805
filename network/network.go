// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package network runs the controllers of the network: they grant addresses to peers, render
// gateways, and give nodes and gateways their addresses in the overlay.
//
// It reads the objects of users, the installation and peers, and package plan turns them into
// desired objects. It programs no kernel; the roles fabric and gateway do that from these objects.
//
//	Network, IP                    address space and single addresses are granted
//	Configuration                  the peer's CIDRs become Networks
//	GatewayServer, GatewayClient   a template is rendered, an InternalFabric made
//	WgGatewayServer, -Client       Deployment, Service, keys and rights of a gateway
//	Pod and Lease of a gateway     the active one of several replicas is marked
//	Connection                     is reported down when no pod of its gateway runs
//	Node                           an InternalNode is made
//	Pod at a peer                  gets an IP, for the other peers
//	kubeconfig of a provider       endpoints, keys and CIDRs are kept equal on both sides
//
// Start reading at Controllers; each file beside it holds the reads of the controllers it names.
package network

import (
	"context"
	"fmt"
	"net/netip"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/remote"
)

// Options are settings of the installation for the network's controllers.
type Options struct {
	// ClusterID is the ID of this cluster.
	ClusterID string
	// LiqoNamespace is the namespace of the installation.
	LiqoNamespace string
	// Pools are the ranges that remapped CIDRs are taken from, in order of preference; empty = the
	// default.
	Pools []netip.Prefix
	// APIServerEndpoints reports whether peers reach the API server at its endpoints, not by its
	// Service.
	APIServerEndpoints bool
	// ProtectedNamespaces are those whose pods no peer reaches, beside LiqoNamespace.
	ProtectedNamespaces []string
	// GatewayImage replaces the images of templates written for gateways of three containers;
	// empty keeps the template's.
	GatewayImage string
	// Links holds the links to the providers whose parameters are followed.
	Links *remote.Fleet
}

// Controllers lists everything of the network that runs in the controller.
func Controllers(o Options) []ctl.Registrar {
	if len(o.Pools) == 0 {
		for _, pool := range api.Pools() {
			o.Pools = append(o.Pools, netip.MustParsePrefix(pool))
		}
	}
	return []ctl.Registrar{
		networksByGrant(), ipsByGrant(), o.network(), o.ip(), o.apiServerIP(), o.configuration(),
		o.gatewayServer(), o.gatewayClient(), o.wgGatewayServer(), o.wgGatewayClient(), o.replica(), o.secretLabel(),
		o.connection(), podsByNode(), o.internalNode(), o.nodeAddress(), o.podIP(), o.follower(),
	}
}

// list reads a list; its error names the kind.
func list(ctx context.Context, r client.Reader, into client.ObjectList, opts ...client.ListOption) error {
	if err := r.List(ctx, into, opts...); err != nil {
		return fmt.Errorf("list %T: %w", into, err)
	}
	return nil
}

// ofPeer selects the objects of the same peer, so that the cost does not grow with other peers.
func ofPeer(obj client.Object) client.ListOption {
	return client.MatchingLabels{api.LabelRemoteClusterID: obj.GetLabels()[api.LabelRemoteClusterID]}
}

// request returns a request for one object; none if name is empty.
func request(namespace, name string) []reconcile.Request {
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}}
}

// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch

// uninstalling reports whether the installation is being removed. Nothing is created again then.
func (o Options) uninstalling(ctx context.Context, r client.Reader) (bool, error) {
	key := client.ObjectKey{Namespace: o.LiqoNamespace, Name: api.ControllerManagerName}
	d, err := ctl.Optional(ctx, r, key, &appsv1.Deployment{})
	return err == nil && d != nil && d.Annotations[api.AnnotationUninstalling] == api.True, err
}

// onUninstall maps a change of the controller's own Deployment to roots.
func (o Options) onUninstall(roots ctl.MapFunc) ctl.Watch {
	return ctl.Watch{Kind: &appsv1.Deployment{},
		Map: func(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
			if obj.GetNamespace() != o.LiqoNamespace || obj.GetName() != api.ControllerManagerName {
				return nil
			}
			return roots(ctx, r, obj)
		}}
}

// onOwnNetworks maps a change of one of this cluster's Networks to roots.
func (o Options) onOwnNetworks(roots ctl.MapFunc) ctl.MapFunc {
	return func(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
		if obj.GetNamespace() != o.LiqoNamespace {
			return nil
		}
		return roots(ctx, r, obj)
	}
}
