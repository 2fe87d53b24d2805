// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package network says how peers are reached: which addresses they have here, through which
// gateway traffic for them goes, and how nodes and gateways find each other.
//
// This package is the part of it that runs in the controller: it reads what users, the
// installation and peers ask for, and lets package plan turn that into objects. It programs no
// kernel; the roles fabric and gateway do, from those objects.
//
//	Network, IP                    address space and single addresses are granted
//	Configuration                  the peer's CIDRs become Networks
//	GatewayServer, GatewayClient   a template is rendered, an InternalFabric made
//	WgGatewayServer, -Client       Deployment, Service, keys and rights of a gateway
//	Pod and Lease of a gateway     the active one of several replicas is marked
//	Connection                     is told to be down when no pod of its gateway runs
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/remote"
)

// Options are what the network's controllers must know of the installation.
type Options struct {
	// ClusterID is the ID of this cluster.
	ClusterID string
	// LiqoNamespace is the namespace of the installation.
	LiqoNamespace string
	// Pools are where remapped CIDRs are taken, in order of preference; empty means the default.
	Pools []netip.Prefix
	// APIServerEndpoints: peers reach the API server at its endpoints, not by its Service.
	APIServerEndpoints bool
	// ProtectedNamespaces are those whose pods no peer reaches, beside LiqoNamespace.
	ProtectedNamespaces []string
	// GatewayImage replaces the images of templates written for gateways of three containers;
	// empty keeps the template's.
	GatewayImage string
	// Links lead to the providers whose parameters are followed.
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

// list fills a list or says which one could not be read.
func list(ctx context.Context, r client.Reader, into client.ObjectList, opts ...client.ListOption) error {
	if err := r.List(ctx, into, opts...); err != nil {
		return fmt.Errorf("list %T: %w", into, err)
	}
	return nil
}

// ofPeer are the objects of the same peer, so that what is read and copied does not grow with the others.
func ofPeer(obj client.Object) client.ListOption {
	return client.MatchingLabels{api.LabelRemoteClusterID: obj.GetLabels()[api.LabelRemoteClusterID]}
}

// get reads an object and reports whether it is there. A kind that is not installed has no objects.
func get(ctx context.Context, r client.Reader, namespace, name string, into client.Object) (bool, error) {
	err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get %T %s/%s: %w", into, namespace, name, err)
	}
	return true, nil
}

// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch

// uninstalling reports whether the installation is being removed: then nothing is made again.
func (o Options) uninstalling(ctx context.Context, r client.Reader) (bool, error) {
	var d appsv1.Deployment
	found, err := get(ctx, r, o.LiqoNamespace, api.ControllerManagerName, &d)
	return found && d.Annotations[api.AnnotationUninstalling] == api.True, err
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
