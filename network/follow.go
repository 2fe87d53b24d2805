// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/remote"
	"github.com/liqo-go/liqo/network/objects/plan"
)

// follower keeps the parameters of a peering equal on both sides: endpoints, keys and CIDRs. It
// acts where this cluster has a control-plane identity at the provider. For each kubeconfig Secret
// it watches the tenant namespace at the provider, and patches what differs on either side.
type follower struct {
	clusterID string
	links     *remote.Fleet
	// followed holds the versions of the provider's objects that were followed last, by Secret.
	// Only one worker uses it.
	followed map[types.NamespacedName]map[string]string
	// changes enqueues Secrets when their link or the copy of the provider's objects has changed.
	changes ctl.Source
}

// parameters returns the kinds of the parameters.
func parameters() []client.Object {
	return []client.Object{
		&netv1beta1.GatewayServer{}, &netv1beta1.GatewayClient{}, &netv1beta1.Configuration{}, &netv1beta1.PublicKey{},
	}
}

func (o Options) follower() *follower {
	return &follower{clusterID: o.ClusterID, links: o.Links, followed: map[types.NamespacedName]map[string]string{}}
}

// +kubebuilder:rbac:groups="",resources=secrets;namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=gatewayservers;gatewayclients;configurations;publickeies,verbs=get;list;watch
// +kubebuilder:rbac:groups=networking.liqo.io,resources=gatewayclients;configurations;publickeies,verbs=patch

// Register adds the controller to the manager.
func (f *follower) Register(mgr manager.Manager) error {
	ofPeer := func(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
		return f.links.Of(obj.GetLabels()[api.LabelRemoteClusterID])
	}
	f.links.Subscribe(func(secret types.NamespacedName, _ string) { f.changes.Wake(secret) })
	row := ctl.Controller[*corev1.Secret, plan.FollowInput]{
		Name: "follow", Quiet: true,
		Only:    func(root *corev1.Secret) bool { return remote.Labelled(root) },
		Watches: []ctl.Watch{{Source: &f.changes}},
		Peer:    f.peer,
		Gather:  f.gather,
		Plan:    plan.Following,
	}
	for _, kind := range parameters() {
		row.Watches = append(row.Watches, ctl.Watch{Kind: kind, Map: ofPeer})
	}
	return row.Register(mgr)
}

// peer returns the client for the provider of a Secret.
func (f *follower) peer(secret *corev1.Secret) (client.Client, error) {
	link := f.links.Get(client.ObjectKeyFromObject(secret))
	if link == nil {
		return nil, fmt.Errorf("secret %s/%s no longer leads to a provider", secret.Namespace, secret.Name)
	}
	return link.Client, nil
}

// gather reads both sides. It applies provider changes immediately, because the current connection
// may be about to go away. If the provider's side has not changed, the local side has. Then the
// copy may be stale, and somebody may have repaired the provider's side, so gather asks the provider
// itself.
func (f *follower) gather(ctx context.Context, r ctl.Reader, root *corev1.Secret) (in plan.FollowInput, err error) {
	key := client.ObjectKeyFromObject(root)
	link := f.links.Get(key)
	if link == nil || link.Namespace == "" {
		delete(f.followed, key)
		return in, nil
	}
	provider, err := link.Copy("parameters", remote.CopySpec{
		Kinds: parameters(), Probe: &netv1beta1.GatewayServerList{},
		Selector: labels.SelectorFromSet(labels.Set{api.LabelRemoteClusterID: f.clusterID}),
		Changed:  func() { f.changes.Wake(key) },
	})
	if err != nil || !provider.Synced() {
		return in, err
	}
	if in.Peer, err = side(ctx, provider); err != nil { // the copy holds this peering only
		return in, err
	}
	// gather asks the API server before it plans a change, because the cache may be stale. If the cache
	// hides a change, its event reconciles the Secret again.
	for _, from := range []client.Reader{r, r.Live} {
		if in.Own, err = side(ctx, from, client.MatchingLabels{api.LabelRemoteClusterID: link.ID}); err != nil {
			return in, err
		}
		if len(plan.Follow(in.Own, in.Peer)) == 0 {
			break
		}
	}
	versions := in.Peer.Versions()
	switch unchanged := maps.Equal(versions, f.followed[key]); {
	case len(plan.Follow(in.Own, in.Peer)) == 0:
		f.followed[key] = versions
	case unchanged:
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		in.Peer, err = side(ctx, link, client.InNamespace(link.Namespace),
			client.MatchingLabels{api.LabelRemoteClusterID: f.clusterID})
		if err != nil {
			return in, fmt.Errorf("ask %s: %w", link.ID, err)
		}
	}
	return in, nil
}

// askTime bounds a list of the provider's objects, because other Secrets wait for the worker meanwhile.
const askTime = 5 * time.Second

// side reads one side of a peering.
func side(ctx context.Context, r client.Reader, opts ...client.ListOption) (plan.Side, error) {
	var (
		servers        netv1beta1.GatewayServerList
		clients        netv1beta1.GatewayClientList
		configurations netv1beta1.ConfigurationList
		keys           netv1beta1.PublicKeyList
	)
	for _, l := range []client.ObjectList{&servers, &clients, &configurations, &keys} {
		if err := list(ctx, r, l, opts...); err != nil {
			return plan.Side{}, err
		}
	}
	return plan.Side{
		Servers: servers.Items, Clients: clients.Items,
		Configurations: configurations.Items, PublicKeys: keys.Items,
	}, nil
}
