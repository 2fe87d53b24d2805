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
	var timeout time.Duration
	cmd := &cobra.Command{Use: "unauthenticate", Aliases: []string{"unauth"},
		Short: "Take the local cluster's access to the remote one away", Args: cobra.NoArgs}
	p := addPairFlags(cmd)
	cmd.Flags().BoolVar(&wait, "wait", true, "Wait until all is gone")
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "How long to wait in all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, stop := e.newScript(cmd.Context(), timeout)
		defer stop()
		consumer, provider, err := e.connect(s.ctx, p)
		if err != nil {
			return err
		}
		if err := findTenants(s.ctx, consumer, provider); err != nil {
			return err
		}
		if err := s.runInOrder(s.unauthenticate(consumer, provider, wait)...); err != nil || provider.tenant == "" {
			return err
		}
		return s.tellNetwork(provider, provider.tenant, consumer.id)
	}
	return cmd
}

// findTenants looks both tenant namespaces up; a missing one stays empty and holds nothing.
func findTenants(ctx context.Context, here, there *cluster) error {
	find := func(c, peer *cluster) func() error {
		return func() (err error) {
			if c.tenant == "" {
				c.tenant, err = c.findTenant(ctx, peer.id)
			}
			return err
		}
	}
	return together(find(here, there), find(there, here))
}

var errSlicesPresent = errors.New("resourceslices are still present on consumer cluster")

// unauthenticate removes Identity and Tenant. Slices must be gone: they could not be taken back
// from the provider afterwards.
func (s *script) unauthenticate(consumer, provider *cluster, wait bool) []step {
	return []step{
		{doing: "Looking for resourceslices", do: func(ctx context.Context) error { return noSlices(ctx, consumer) },
			report: func(string) { s.info(consumer.side, "No leftover resourceslices on consumer cluster") }},
		s.dropIdentity(consumer, wait),
		s.clear(clearance{cluster: provider, in: provider.tenant, list: &authv1beta1.TenantList{}, wait: wait,
			doing: "Deleting tenant", gone: "Tenant correctly deleted", none: "Tenant already deleted"}),
	}
}

// noSlices refuses while there are slices. Those being deleted do not count: the credentials stay
// until they are gone, however soon their Identity is deleted.
func noSlices(ctx context.Context, consumer *cluster) error {
	if consumer.tenant == "" {
		return nil
	}
	found, err := consumer.all(ctx, &authv1beta1.ResourceSliceList{}, client.InNamespace(consumer.tenant),
		ofPeer(consumer.other.id), client.MatchingLabels{api.LabelReplication: api.True})
	if slices.ContainsFunc(found, func(o client.Object) bool { return o.GetDeletionTimestamp() == nil }) {
		return errSlicesPresent
	}
	return err
}

func (s *script) dropIdentity(consumer *cluster, wait bool) step {
	return s.clear(clearance{cluster: consumer, in: consumer.tenant, list: &authv1beta1.IdentityList{}, wait: wait,
		doing: "Deleting identity", gone: "Identity control plane correctly deleted",
		none: "Identity control plane already deleted"})
}

// clearance is what to remove of a peer from a namespace, and the lines about it.
type clearance struct {
	*cluster
	// in is the namespace; there is nothing to remove when it is empty.
	in string
	// labels narrow the objects down; copies made by a peer that uses us are not ours to remove.
	labels client.MatchingLabels
	list   client.ObjectList
	wait   bool
	// existed reports that there was something before; nil = it did not.
	existed *bool
	// doing is shown meanwhile, gone printed when something was there, none when nothing was.
	doing, gone, none string
	// ensured is printed after the wait.
	ensured string
}

// clear is the step that removes the objects of a peer and waits until they are gone.
func (s *script) clear(c clearance) step {
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

// removeAll deletes, waits if asked to, and tells whether there was anything.
func (c clearance) removeAll(ctx context.Context) (found bool, err error) {
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
