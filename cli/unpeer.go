// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// unpeerOptions are the flags of unpeer.
type unpeerOptions struct {
	wait, deleteNamespaces bool
	timeout                time.Duration
}

func (e *env) unpeerCommand() *cobra.Command {
	var o unpeerOptions
	cmd := &cobra.Command{Use: "unpeer", Short: "End the local cluster's use of the remote one", Args: cobra.NoArgs}
	p := addPairFlags(cmd)
	cmd.Flags().BoolVar(&o.wait, "wait", true, "Wait until all is gone")
	cmd.Flags().BoolVar(&o.deleteNamespaces, "delete-namespaces", false, "Delete the tenant namespaces too")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 2*time.Minute, "How long to wait in all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return e.unpeer(cmd.Context(), p, o) }
	return cmd
}

var errBidirectional = errors.New("cannot delete the tenant namespace when a bidirectional is enabled, please remove the --delete-namespaces flag")

// unpeer undoes peer in reverse. The identity goes last but the network: the copies at the provider
// are deleted with it.
func (e *env) unpeer(ctx context.Context, p *pair, o unpeerOptions) error {
	s, stop := e.newScript(ctx, o.timeout)
	defer stop()
	consumer, provider, err := e.connect(s.ctx, p)
	if silent := (*noAnswer)(nil); errors.As(err, &silent) && silent.at == remote {
		return hint(err, "if the cluster is gone for good, run '%s force unpeer <its cluster ID>'", e.name)
	}
	if err != nil {
		return err
	}
	bidirectional, err := consumer.alsoServes(s.ctx, provider.id)
	if err != nil {
		return err
	}
	if bidirectional && o.deleteNamespaces {
		return errBidirectional
	}
	if err := findTenants(s.ctx, consumer, provider); err != nil {
		return err
	}
	if err := s.dropOffloading(consumer, provider, o.wait); err != nil {
		return err
	}
	if err := s.unauthenticate(consumer, provider, o.wait); err != nil {
		return err
	}
	if !bidirectional {
		n := newNetwork(s, consumer, provider, networkOptions{wait: o.wait})
		if err := n.findBoth(); err != nil {
			return err
		}
		if err := n.reset(); err != nil {
			return err
		}
	}
	if o.wait {
		if err := s.awaitNothingLeft(consumer, provider, bidirectional); err != nil {
			return err
		}
	}
	if o.deleteNamespaces {
		return together(
			func() error { return s.dropNamespace(consumer, o.wait) },
			func() error { return s.dropNamespace(provider, o.wait) },
		)
	}
	return nil
}

// alsoServes reports whether the peer is a consumer of ours as well.
func (c *cluster) alsoServes(ctx context.Context, peer string) (bool, error) {
	foreign := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: peer}}
	err := c.Get(ctx, client.ObjectKeyFromObject(foreign), foreign)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return foreign.Status.Role == corev1beta1.RoleConsumerAndProvider, c.describe("read", foreign, err)
}

// dropOffloading deletes slices, then virtual nodes, whose pods come back home. Both are asked to
// go at once: a virtual node drains while its slice is taken back from the provider.
func (s *script) dropOffloading(consumer, provider *cluster, wait bool) error {
	slices := clearance{cluster: consumer, in: consumer.tenant, peer: provider.id, list: &authv1beta1.ResourceSliceList{}, wait: wait,
		labels: client.MatchingLabels{api.LabelReplication: api.True}, doing: "Deleting resourceslices",
		gone: "All resourceslices deleted", none: "No resourceslices found", ensured: "Ensured resourceslices absence"}
	nodes := clearance{cluster: consumer, in: consumer.tenant, peer: provider.id, list: &offv1beta1.VirtualNodeList{}, wait: wait, doing: "Deleting virtualnodes",
		gone: "All virtualnodes deleted", none: "No virtualnodes found", ensured: "Ensured virtualnodes absence"}
	// Most virtual nodes go with their slice; they were there all the same.
	existed, err := consumer.holds(s.ctx, provider.id, &offv1beta1.VirtualNodeList{})
	if err != nil {
		return err
	}
	if err := s.clear(slices); err != nil {
		return err
	}
	if existed {
		nodes.none = nodes.gone
	}
	return s.clear(nodes)
}

// holds reports whether the tenant namespace has objects of the list.
func (c *cluster) holds(ctx context.Context, peer string, list client.ObjectList) (bool, error) {
	if c.tenant == "" {
		return false, nil
	}
	err := c.listOf(ctx, c.tenant, peer, list)
	return meta.LenList(list) > 0, err
}

// awaitNothingLeft waits for what goes with its owners: the command returns when all is gone.
func (s *script) awaitNothingLeft(consumer, provider *cluster, bidirectional bool) error {
	s.busy(nowhere, "Waiting until nothing is left")
	defer s.quiet()
	var work []func() error
	// A peering user may not look at what the provider's controllers make; they take it away alone.
	none := func(c *cluster, list client.ObjectList, opts ...client.ListOption) {
		work = append(work, func() error {
			if err := c.awaitNone(s.ctx, list, opts...); !apierrors.IsForbidden(err) {
				return err
			}
			return nil
		})
	}
	none(consumer, &corev1.NodeList{}, client.MatchingLabels{api.LabelType: api.TypeVirtualNode, api.LabelRemoteClusterID: provider.id})
	if !bidirectional {
		for _, c := range []*cluster{consumer, provider} {
			if c.tenant == "" {
				continue
			}
			for _, list := range []client.ObjectList{&netv1beta1.ConnectionList{}, &netv1beta1.WgGatewayServerList{}, &netv1beta1.WgGatewayClientList{},
				&netv1beta1.InternalFabricList{}} {
				none(c, list, client.InNamespace(c.tenant))
			}
		}
	}
	if consumer.tenant != "" {
		none(consumer, &offv1beta1.NamespaceMapList{}, client.InNamespace(consumer.tenant), client.MatchingLabels{api.LabelReplication: api.True})
	}
	if provider.tenant != "" {
		none(provider, &offv1beta1.QuotaList{}, client.InNamespace(provider.tenant))
		none(provider, &offv1beta1.ShadowPodList{}, client.MatchingLabels{api.LabelOrigin: consumer.id})
		none(provider, &offv1beta1.ShadowEndpointSliceList{}, client.MatchingLabels{api.LabelOrigin: consumer.id})
		none(provider, &offv1beta1.NamespaceMapList{}, client.InNamespace(provider.tenant), client.MatchingLabels{api.LabelOriginID: consumer.id})
	}
	return together(work...)
}

func (s *script) dropNamespace(c *cluster, wait bool) error {
	if c.tenant == "" {
		s.info(c.side, "Tenant namespace already deleted")
		return nil
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.tenant}}
	if _, err := c.remove(s.ctx, namespace); err != nil {
		return err
	}
	s.info(c.side, "Tenant namespace deleted")
	if !wait {
		return nil
	}
	s.busy(c.side, "Waiting until the tenant namespace is gone")
	if err := c.awaitGone(s.ctx, namespace); err != nil {
		return fmt.Errorf("delete namespace %s: %w", c.tenant, err)
	}
	s.info(c.side, "Ensured tenant namespace absence")
	return nil
}
