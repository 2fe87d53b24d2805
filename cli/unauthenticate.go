// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
)

func (e *env) unauthenticateCommand() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{Use: "unauthenticate", Aliases: []string{"unauth"},
		Short:   "Take the local cluster's access to the remote one away",
		Example: "  liqoctl unauthenticate --remote-kubeconfig milan.yaml"}
	p := addPairFlags(cmd, 2*time.Minute)
	cmd.Flags().BoolVar(&wait, "wait", true, "Wait until all is gone")
	e.addDryRunFlag(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return e.onPair(cmd, p, func(s *script, consumer, provider *cluster) error {
			if err := findTenants(s.ctx, consumer, provider); err != nil {
				return err
			}
			err := s.runInOrder(s.unauthenticate(consumer, provider, wait && !e.dry())...)
			if err != nil || provider.tenant == "" {
				return err
			}
			return s.warnOfNetwork(provider, provider.tenant, consumer.id)
		})
	}
	return cmd
}

// findTenants finds both tenant namespaces; a missing one stays empty.
func findTenants(ctx context.Context, pair ...*cluster) error {
	return onEach(pair, func(c *cluster) (err error) {
		if c.tenant == "" {
			c.tenant, err = c.findTenant(ctx, c.other.id)
		}
		return err
	})
}

// unauthenticate deletes Identity and Tenant. The slices must be deleted before, since afterwards
// their copies at the provider could not be deleted.
func (s *script) unauthenticate(consumer, provider *cluster, wait bool) []step {
	steps := append([]step{{doing: "Looking for resourceslices",
		do:     func(ctx context.Context) error { return requireNoSlices(ctx, consumer) },
		report: func(string) { s.info(consumer.side, "No leftover resourceslices on consumer cluster") }}},
		s.removeIdentity(consumer, wait)...)
	return append(steps,
		s.clear(removal{cluster: provider, in: provider.tenant, list: &authv1beta1.TenantList{}, wait: wait,
			doing: "Deleting tenant", gone: "Tenant correctly deleted", none: "Tenant already deleted"}))
}

// requireNoSlices fails while there are slices that are not being deleted. The credentials stay
// until the others are gone, however soon their Identity is deleted.
func requireNoSlices(ctx context.Context, consumer *cluster) error {
	if consumer.tenant == "" {
		return nil
	}
	found, err := consumer.all(ctx, &authv1beta1.ResourceSliceList{}, client.InNamespace(consumer.tenant),
		ofPeer(consumer.other.id), client.MatchingLabels{api.LabelReplication: api.True})
	if slices.ContainsFunc(found, func(o client.Object) bool { return o.GetDeletionTimestamp() == nil }) {
		return errors.New("resourceslices are still present on consumer cluster")
	}
	return err
}

// removeIdentity deletes the Identity, then its Renew. Kubernetes' garbage collector also does, but only
// after half a minute if both kinds are new to it: it looks for new kinds each 30 s.
func (s *script) removeIdentity(consumer *cluster, wait bool) []step {
	renews := removal{cluster: consumer, in: consumer.tenant, list: &authv1beta1.RenewList{}, wait: wait,
		labels: client.MatchingLabels{api.LabelReplication: api.True}}
	return []step{
		s.clear(removal{cluster: consumer, in: consumer.tenant, list: &authv1beta1.IdentityList{}, wait: wait,
			doing: "Deleting identity", gone: "Identity control plane correctly deleted",
			none: "Identity control plane already deleted"}),
		{at: &consumer, doing: "Deleting renew", do: func(ctx context.Context) error {
			_, err := renews.removeAll(ctx)
			return err
		}},
	}
}

// removal describes the objects of a peer to delete in a namespace, and the lines about them.
type removal struct {
	*cluster
	// in is the namespace; if it is empty, there is nothing to delete.
	in string
	// labels select among the objects: copies that a consumer created must stay.
	labels client.MatchingLabels
	list   client.ObjectList
	wait   bool
	// existed reports that there were objects before; nil = there were not.
	existed *bool
	// doing is shown meanwhile; gone is printed if there were objects, none if there were not.
	doing, gone, none string
	// ensured is printed after the wait.
	ensured string
}

// clear returns the step that deletes the objects of a peer and waits until they are gone.
func (s *script) clear(c removal) step {
	found := false
	return step{at: &c.cluster, doing: c.doing, do: func(ctx context.Context) (err error) {
		found, err = c.removeAll(ctx)
		return err
	}, report: func(string) {
		text := c.none
		if found || c.existed != nil && *c.existed {
			text = c.gone
		}
		s.info(c.side, "%s", text)
		if c.wait && c.ensured != "" {
			s.info(c.side, "%s", c.ensured)
		}
	}}
}

// removeAll deletes the objects, waits if asked to, and returns whether there were any.
func (c removal) removeAll(ctx context.Context) (found bool, err error) {
	if c.in == "" {
		return false, nil
	}
	which := []client.ListOption{client.InNamespace(c.in), ofPeer(c.other.id), c.labels}
	objects, err := c.all(ctx, c.list, which...)
	if err != nil {
		return false, err
	}
	for _, object := range objects {
		if _, err := c.remove(ctx, object); err != nil {
			return false, err
		}
	}
	if c.wait {
		err = c.awaitNone(ctx, c.list, which...)
	}
	return len(objects) > 0, err
}
