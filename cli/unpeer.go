// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// unpeerOptions holds the flags of unpeer.
type unpeerOptions struct{ wait, deleteNamespaces bool }

func (e *env) unpeerCommand() *cobra.Command {
	var o unpeerOptions
	cmd := &cobra.Command{Use: "unpeer", Short: "End the local cluster's use of the remote one",
		Example: "  liqoctl unpeer --remote-kubeconfig milan.yaml\n" +
			"  liqoctl unpeer --remote-kubeconfig milan.yaml --delete-namespaces"}
	p := addPairFlags(cmd, 2*time.Minute)
	cmd.Flags().BoolVar(&o.wait, "wait", true, "Wait until all is gone")
	cmd.Flags().BoolVar(&o.deleteNamespaces, "delete-namespaces", false, "Delete the tenant namespaces too")
	e.addDryRunFlag(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.wait = o.wait && !e.dry()
		return e.unpeer(cmd, p, o)
	}
	return cmd
}

// unpeer undoes peer in reverse: offloading, then Identity and Tenant, and the network beside these. It
// is removed after them if the provider is reached through the tunnel: the Identity's credentials are
// needed to delete the copies at the provider.
func (e *env) unpeer(cmd *cobra.Command, p *pair, o unpeerOptions) error {
	s, stop := e.scriptOf(cmd)
	defer stop()
	consumer, provider, err := e.connect(s.ctx, cmd, p)
	if silent := (*noAnswer)(nil); errors.As(err, &silent) && silent.at == remote {
		return s.removeConsumerSide(consumer, provider, err)
	}
	if err != nil {
		return err
	}
	if err := findTenants(s.ctx, consumer, provider); err != nil {
		return err
	}
	bidirectional, err := isBidirectional(s.ctx, consumer, provider)
	if err != nil {
		return err
	}
	if bidirectional && o.deleteNamespaces {
		return errors.New("cannot delete the tenant namespace when a bidirectional is enabled, " +
			"please remove the --delete-namespaces flag")
	}
	return withLeftovers(s.removePeering(consumer, provider, bidirectional, o), consumer, provider)
}

// removePeering removes everything except what the other direction needs.
func (s *script) removePeering(consumer, provider *cluster, bidirectional bool, o unpeerOptions) error {
	inBand, err := consumer.inBand(s.ctx, provider.id)
	if err != nil {
		return err
	}
	if err := s.confirmUnpeer(consumer, provider); err != nil {
		return err
	}
	steps := s.removeOffloading(consumer, o.wait)
	if inBand && o.wait {
		steps = append(steps, step{at: &consumer, doing: "Waiting until the namespaces next door are gone",
			do: consumer.awaitRemoteNamespaces})
	}
	access := s.unauthenticate(consumer, provider, o.wait)
	if s.env.dry() {
		access[0].do = nil // the slices are still there
	}
	if inBand && !bidirectional && !s.env.dry() {
		// The credentials stay as long as they are needed to delete copies at the provider.
		credentials := client.MatchingLabels{
			api.LabelIdentityType: string(authv1beta1.IdentityControlPlane), api.LabelRemoteClusterID: provider.id}
		access = append(access, step{at: &consumer, doing: "Waiting until nothing needs the tunnel",
			do: func(ctx context.Context) error {
				return consumer.awaitNone(ctx, &corev1.SecretList{}, client.InNamespace(consumer.tenant), credentials)
			}})
	}
	steps = append(inOrder("offloading gone", "", steps), inOrder("access gone", "offloading gone", access)...)
	if !bidirectional {
		n := newNetwork(s, consumer, provider, networkOptions{wait: o.wait})
		if err := n.findBoth(s.ctx); err != nil {
			return err
		}
		for _, undo := range n.reset() {
			undo.after = append(undo.after, "offloading gone")
			if inBand {
				undo.after = append(undo.after, "access gone")
			}
			steps = append(steps, undo)
		}
	}
	if o.wait {
		steps = append(steps, step{after: []string{"access gone", networkGone}, doing: "Waiting until nothing is left",
			do: func(ctx context.Context) error {
				return awaitNothingLeft(ctx, consumer, provider, bidirectional)
			}})
	}
	if err := s.run(steps...); err != nil || !o.deleteNamespaces {
		return err
	}
	return s.removeNamespaces(o.wait, consumer, provider)
}

// inOrder makes each step follow the one before it, and the first the steps of the name in after. The
// last gets a name.
func inOrder(name, after string, steps []step) []step {
	for i := range steps {
		steps[i].name, steps[i].after = fmt.Sprint(name, i), []string{after}
		after = steps[i].name
	}
	steps[len(steps)-1].name = name
	return steps
}

// remoteNamespacesTimeout bounds the wait for remote namespaces, whose pods are gone by then: the
// API server takes some seconds to delete them. The provider deletes what is left after it.
const remoteNamespacesTimeout = 30 * time.Second

// awaitRemoteNamespaces waits until the consumer observes that its remote namespaces are gone. It
// must do so before the Tenant is deleted, which ends the route to the provider's API server.
func (c *cluster) awaitRemoteNamespaces(ctx context.Context) error {
	within, cancel := context.WithTimeoutCause(ctx, remoteNamespacesTimeout, errTimeout)
	defer cancel()
	err := c.awaitNone(within, &offv1beta1.NamespaceMapList{}, client.InNamespace(c.tenant),
		client.MatchingLabels{api.LabelReplication: api.True})
	if errors.Is(err, errTimeout) && ctx.Err() == nil {
		return nil
	}
	return err
}

// inBand reports whether the provider's API server is reached through a proxy, and so possibly
// through the tunnel.
func (c *cluster) inBand(ctx context.Context, provider string) (bool, error) {
	if c.tenant == "" {
		return false, nil
	}
	identities := &authv1beta1.IdentityList{}
	err := c.listOf(ctx, c.tenant, provider, identities)
	return slices.ContainsFunc(identities.Items, func(i authv1beta1.Identity) bool {
		return i.Spec.AuthParams != nil && i.Spec.AuthParams.ProxyURL != ""
	}), err
}

// isBidirectional reports whether the provider is also a consumer of this cluster: this cluster has
// a Tenant for it, or it has an Identity or a virtual node for this cluster. It does not use the
// ForeignCluster, whose role may be out of date.
func isBidirectional(ctx context.Context, consumer, provider *cluster) (bool, error) {
	hasObjects := func(c *cluster, peer string, list client.ObjectList) (bool, error) {
		err := c.listOf(ctx, everywhere, peer, list)
		if apierrors.IsForbidden(err) { // to a peering user, at the provider
			return false, nil
		}
		return meta.LenList(list) > 0, err
	}
	if tenant, err := hasObjects(consumer, provider.id, &authv1beta1.TenantList{}); tenant || err != nil {
		return tenant, err
	}
	if identity, err := hasObjects(provider, consumer.id, &authv1beta1.IdentityList{}); identity || err != nil {
		return identity, err
	}
	return hasObjects(provider, consumer.id, &offv1beta1.VirtualNodeList{})
}

// removeConsumerSide removes the consumer's half of a peering whose provider does not answer. What
// needs the provider is deleted when it answers again; a second run removes the rest.
func (s *script) removeConsumerSide(consumer, provider *cluster, silent error) error {
	const gone = "if the cluster is gone for good, run '%s force unpeer %s'"
	id, err := consumer.providerAt(s.ctx, provider.config)
	if err != nil || id == "" {
		return hint(silent, gone, consumer.env.name, "<its cluster ID>")
	}
	provider.id = id
	if consumer.tenant, err = consumer.findTenant(s.ctx, id); err != nil {
		return err
	}
	if err := s.confirmUnpeer(consumer, provider); err != nil {
		return err
	}
	steps := slices.Concat(s.removeOffloading(consumer, false), s.removeIdentity(consumer, false))
	if err := s.runInOrder(steps...); err != nil {
		return err
	}
	left, err := consumer.leftoversOf(s.ctx, id)
	if err != nil {
		return err
	}
	left = slices.DeleteFunc(left, func(o client.Object) bool { return o.GetDeletionTimestamp() == nil })
	if len(left) > 0 {
		s.warn(local, "Gone when %s answers: %s", id, consumer.namesOf(left))
	}
	s.warn(remote, "The Tenant, what runs there and the network stay; run '%s unpeer' again when %s answers. Its "+
		"administrator can end the pods there with '%s drain tenant %s'",
		consumer.env.name, id, consumer.env.name, consumer.id)
	return hint(silent, gone, consumer.env.name, id)
}

// providerAt returns the cluster ID of the provider with this API server: that of the control-plane
// kubeconfig with its address, else, since a server can have several addresses, of the one with its
// certificate authority. It returns nothing if several providers match: they can share an authority
// or an address.
func (c *cluster) providerAt(ctx context.Context, server *rest.Config) (string, error) {
	server = rest.CopyConfig(server)
	if err := rest.LoadTLSFiles(server); err != nil {
		return "", fmt.Errorf("read certificates: %w", err)
	}
	kubeconfigs, err := c.all(ctx, &corev1.SecretList{},
		client.MatchingLabels{api.LabelIdentityType: string(authv1beta1.IdentityControlPlane)})
	if err != nil {
		return "", err
	}
	var byAddress, byAuthority []string
	for _, object := range kubeconfigs {
		known, err := clientcmd.RESTConfigFromKubeConfig(object.(*corev1.Secret).Data[api.KubeconfigField])
		id := object.GetLabels()[api.LabelRemoteClusterID]
		switch {
		case err != nil:
		case known.Host == server.Host:
			byAddress = append(byAddress, id)
		case len(known.CAData) > 0 && bytes.Equal(known.CAData, server.CAData):
			byAuthority = append(byAuthority, id)
		}
	}
	found := byAddress
	if len(found) == 0 {
		found = byAuthority
	}
	slices.Sort(found)
	if found = slices.Compact(found); len(found) != 1 {
		return "", nil
	}
	return found[0], nil
}

// withLeftovers adds to errTimeout what is left of the peering in both clusters.
func withLeftovers(err error, consumer, provider *cluster) error {
	if !errors.Is(err, errTimeout) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), limits.explain)
	defer cancel()
	var names []string
	add := func(c *cluster, list client.ObjectList, labels client.MatchingLabels) {
		left, _ := c.all(ctx, list, ofPeer(c.other.id), labels)
		for _, object := range left {
			names = append(names, c.side.String()+c.nameOf(object))
		}
	}
	add(consumer, &authv1beta1.ResourceSliceList{}, client.MatchingLabels{api.LabelReplication: api.True})
	add(consumer, &offv1beta1.VirtualNodeList{}, nil)
	add(consumer, &authv1beta1.IdentityList{}, nil)
	add(provider, &authv1beta1.TenantList{}, nil)
	if len(names) == 0 {
		return err
	}
	return fmt.Errorf("%w; still there: %s; run unpeer again to go on", err, someNames(names))
}

// removeOffloading deletes slices, then virtual nodes. A virtual node is drained while the copy of
// its slice at the provider is deleted.
func (s *script) removeOffloading(consumer *cluster, wait bool) []step {
	existed := new(bool)
	return []step{
		// Most virtual nodes are deleted with their slice, but the line about them is that they
		// were deleted.
		{doing: "Looking for virtualnodes", do: func(ctx context.Context) (err error) {
			*existed, err = consumer.hasObjects(ctx, consumer.other.id, &offv1beta1.VirtualNodeList{})
			return err
		}},
		s.clear(removal{cluster: consumer, in: consumer.tenant, list: &authv1beta1.ResourceSliceList{}, wait: wait,
			labels: client.MatchingLabels{api.LabelReplication: api.True}, doing: "Deleting resourceslices",
			gone: "All resourceslices deleted", none: "No resourceslices found",
			ensured: "Ensured resourceslices absence"}),
		s.clear(removal{cluster: consumer, in: consumer.tenant, list: &offv1beta1.VirtualNodeList{}, wait: wait,
			existed: existed, doing: "Deleting virtualnodes", gone: "All virtualnodes deleted",
			none: "No virtualnodes found", ensured: "Ensured virtualnodes absence"}),
	}
}

// hasObjects reports whether the tenant namespace has objects of the list.
func (c *cluster) hasObjects(ctx context.Context, peer string, list client.ObjectList) (bool, error) {
	if c.tenant == "" {
		return false, nil
	}
	err := c.listOf(ctx, c.tenant, peer, list)
	return meta.LenList(list) > 0, err
}

// awaitNothingLeft waits until objects that are deleted with their owners are gone.
func awaitNothingLeft(ctx context.Context, consumer, provider *cluster, bidirectional bool) error {
	var work []func() error
	// A peering user may not list what the provider's controllers create, and also delete.
	none := func(c *cluster, list client.ObjectList, opts ...client.ListOption) {
		work = append(work, func() error {
			if err := c.awaitNone(ctx, list, opts...); !apierrors.IsForbidden(err) {
				return err
			}
			return nil
		})
	}
	none(consumer, &corev1.NodeList{},
		client.MatchingLabels{api.LabelType: api.TypeVirtualNode, api.LabelRemoteClusterID: provider.id})
	if !bidirectional {
		for _, c := range []*cluster{consumer, provider} {
			if c.tenant == "" {
				continue
			}
			for _, list := range []client.ObjectList{&netv1beta1.ConnectionList{}, &netv1beta1.WgGatewayServerList{},
				&netv1beta1.WgGatewayClientList{}, &netv1beta1.InternalFabricList{}} {
				none(c, list, client.InNamespace(c.tenant))
			}
		}
	}
	if consumer.tenant != "" {
		none(consumer, &offv1beta1.NamespaceMapList{}, client.InNamespace(consumer.tenant),
			client.MatchingLabels{api.LabelReplication: api.True})
	}
	if provider.tenant != "" {
		none(provider, &offv1beta1.QuotaList{}, client.InNamespace(provider.tenant))
		none(provider, &offv1beta1.ShadowPodList{}, client.MatchingLabels{api.LabelOrigin: consumer.id})
		none(provider, &offv1beta1.ShadowEndpointSliceList{}, client.MatchingLabels{api.LabelOrigin: consumer.id})
		for _, list := range []client.ObjectList{&authv1beta1.ResourceSliceList{}, &offv1beta1.NamespaceMapList{},
			&authv1beta1.RenewList{}} {
			none(provider, list, client.InNamespace(provider.tenant),
				client.MatchingLabels{api.LabelOriginID: consumer.id})
		}
	}
	return inParallel(work...)
}

// removeNamespaces deletes the tenant namespaces of clusters, one after the other so that the lines have an order, and
// waits until they are gone if wait.
func (s *script) removeNamespaces(wait bool, clusters ...*cluster) error {
	var deleted []*cluster
	for _, c := range clusters {
		if c.tenant == "" {
			s.info(c.side, "Tenant namespace already deleted")
			continue
		}
		if _, err := c.remove(s.ctx, tenantNamespaceOf(c)); err != nil {
			return err
		}
		s.info(c.side, "Tenant namespace deleted")
		deleted = append(deleted, c)
	}
	if !wait {
		return nil
	}
	return onEach(deleted, func(c *cluster) error {
		s.busy(c.side, "Waiting until the tenant namespace is gone")
		if err := c.awaitGone(s.ctx, tenantNamespaceOf(c)); err != nil {
			return fmt.Errorf("delete namespace %s: %w", c.tenant, err)
		}
		s.info(c.side, "Ensured tenant namespace absence")
		return nil
	})
}

func tenantNamespaceOf(c *cluster) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.tenant}}
}
