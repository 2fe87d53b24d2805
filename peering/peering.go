// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

// Package peering creates a ForeignCluster for each peer, and keeps its status: who our peers are,
// and whether each part of a peering works.
//
// It only reads the objects of the other rooms and checks the peers' API servers. It neither sets
// up nor removes anything. Every decision is in package plan.
//
// Start reading at Controllers, then gather.
package peering

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/peering/plan"
)

// Options are the settings of this cluster.
type Options struct {
	// LiqoNamespace holds the Deployment that an uninstall marks.
	LiqoNamespace string
	// Modules says which modules are installed.
	Modules plan.Modules
	// Links give access to the peers' API servers.
	Links *remote.Fleet
	// ProbeInterval is the time between two checks whether a peer's API server is alive; 0 = never.
	ProbeInterval time.Duration
	// ProbeTimeout bounds one request.
	ProbeTimeout time.Duration
	// Workers is how many peers are reconciled concurrently; 0 means one.
	Workers int
}

// Controllers returns the controllers of this room.
func Controllers(o Options) []ctl.Registrar {
	s := &summary{Options: o}
	o.Links.Subscribe(func(_ types.NamespacedName, id string) { s.changed.Wake(types.NamespacedName{Name: id}) })
	return []ctl.Registrar{
		o.creation(),
		ctl.Controller[*corev1beta1.ForeignCluster, plan.Input]{
			Name: "foreigncluster", Watches: append(watches(), ctl.Watch{Source: &s.changed}), Gather: s.gather,
			Plan: plan.ForeignCluster, Workers: o.Workers,
		},
		peerInfo(),
		peerConditions(),
	}
}

// summary reads the objects that a ForeignCluster summarizes.
type summary struct {
	Options
	changed ctl.Source // wakes peers whose link, or its health, has changed
}

// evidence returns the kinds whose objects prove that a peer exists, by the label with its ID.
func evidence() []client.Object {
	return []client.Object{
		&netv1beta1.Configuration{}, &netv1beta1.Connection{}, &netv1beta1.GatewayServer{}, &netv1beta1.GatewayClient{},
		&authv1beta1.Tenant{}, &authv1beta1.Identity{}, &offv1beta1.VirtualNode{}, &corev1.Node{},
	}
}

// summaryDelay is the time from the first change of a peer's objects to the update of its
// ForeignCluster. A new peering makes dozens of changes within seconds; no controller waits for the
// status. Events of the ForeignCluster itself are delayed, too: otherwise each status update would
// trigger a reconcile at once.
const summaryDelay = 500 * time.Millisecond

func watches() []ctl.Watch {
	all := []ctl.Watch{{Kind: &corev1beta1.ForeignCluster{}, Delay: summaryDelay}}
	for _, kind := range append(evidence(), &corev1.Secret{}, &corev1.Namespace{}, &appsv1.Deployment{}) {
		all = append(all, ctl.Watch{Kind: kind, Map: peerOf, Delay: summaryDelay})
	}
	return all
}

// +kubebuilder:rbac:groups=core.liqo.io,resources=foreignclusters,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=core.liqo.io,resources=foreignclusters/status,verbs=patch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=configurations;connections;gatewayservers;gatewayclients,verbs=get;list;watch
// +kubebuilder:rbac:groups=authentication.liqo.io,resources=tenants;identities,verbs=get;list;watch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=virtualnodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces;nodes;secrets,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch

func (s *summary) gather(ctx context.Context, r ctl.Reader, root *corev1beta1.ForeignCluster) (plan.Input, error) {
	in := plan.Input{Root: root, Modules: s.Modules, Now: time.Now()}
	var (
		namespaces     corev1.NamespaceList
		configurations netv1beta1.ConfigurationList
		connections    netv1beta1.ConnectionList
		servers        netv1beta1.GatewayServerList
		clients        netv1beta1.GatewayClientList
		tenants        authv1beta1.TenantList
		identities     authv1beta1.IdentityList
		secrets        corev1.SecretList
		virtualNodes   offv1beta1.VirtualNodeList
		nodes          corev1.NodeList
	)
	for _, query := range []struct {
		list   client.ObjectList
		labels client.MatchingLabels
	}{
		{&namespaces, client.MatchingLabels{api.LabelTenantNamespace: "true"}},
		{&configurations, nil}, {&connections, nil}, {&servers, nil}, {&clients, nil},
		{&tenants, nil}, {&identities, nil},
		{&secrets, client.MatchingLabels{api.LabelIdentityType: string(authv1beta1.IdentityControlPlane)}},
		{&virtualNodes, nil},
		{&nodes, client.MatchingLabels{api.LabelType: api.TypeVirtualNode}},
	} {
		peer := client.MatchingLabels{api.LabelRemoteClusterID: root.Spec.ClusterID}
		if err := r.List(ctx, query.list, peer, query.labels); err != nil {
			return in, fmt.Errorf("list %T: %w", query.list, err)
		}
	}
	in.Namespaces, in.Configurations, in.Connections = namespaces.Items, configurations.Items, connections.Items
	in.GatewayServers, in.GatewayClients = servers.Items, clients.Items
	in.Tenants, in.Identities = tenants.Items, identities.Items
	in.Secrets = plan.Kubeconfigs(secrets.Items, namespaces.Items)
	in.VirtualNodes, in.Nodes = virtualNodes.Items, nodes.Items
	if err := deployments(ctx, r, &in); err != nil {
		return in, err
	}
	if len(in.Secrets) > 0 && s.ProbeInterval > 0 {
		in.Probe = s.probe(root.Name, &in.Secrets[0])
	}
	return in, nil
}

// deployments reads the workloads behind gateways and virtual nodes; absent ones are left out.
func deployments(ctx context.Context, r client.Reader, in *plan.Input) error {
	in.Deployments = map[types.NamespacedName]*appsv1.Deployment{}
	for _, name := range plan.Workloads(*in) {
		var deployment appsv1.Deployment
		err := r.Get(ctx, name, &deployment)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get deployment %s: %w", name, err)
		}
		if err == nil {
			in.Deployments[name] = &deployment
		}
	}
	return nil
}
