// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/storage/driver"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/deploy"
)

func (e *env) uninstallCommand() *cobra.Command {
	var namespace string
	var purge bool
	var timeout time.Duration
	cmd := &cobra.Command{Use: "uninstall", Short: "Remove Liqo from the cluster", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := e.confirm("uninstall"); err != nil {
				return err
			}
			return e.uninstall(cmd.Context(), namespace, purge, timeout)
		}}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", api.Namespace, "Namespace Liqo is installed in")
	cmd.Flags().BoolVar(&purge, "purge", false, "Remove the kinds and the namespaces of Liqo too")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Minute, "How long to wait in all")
	return cmd
}

func (e *env) uninstall(ctx context.Context, namespace string, purge bool, timeout time.Duration) error {
	s, stop := e.newScript(ctx, timeout)
	defer stop()
	c, err := e.cluster(e.local, nowhere, namespace)
	if err != nil {
		return err
	}
	if _, err := c.installedID(s.ctx); err != nil {
		return err
	}
	left, err := c.inUse(s.ctx)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		//lint:ignore ST1005 it begins with a name, and is printed to the user as it is
		return fmt.Errorf("Liqo is still in use: %s", strings.Join(left, "; "))
	}
	s.info(nowhere, "Pre-uninstall checks passed")
	s.busy(nowhere, "Uninstalling Liqo")
	if err := e.removeRelease(namespace, timeout); err != nil {
		return err
	}
	s.info(nowhere, "Liqo uninstalled")
	if !purge {
		return nil
	}
	if err := s.purgeCRDs(c); err != nil {
		return err
	}
	s.info(nowhere, "Liqo CRDs purged")
	if err := s.purgeNamespaces(c); err != nil {
		return err
	}
	s.info(nowhere, "Liqo namespaces deleted")
	return nil
}

func (e *env) removeRelease(namespace string, timeout time.Duration) error {
	helm, err := e.helm(namespace)
	if err != nil {
		return err
	}
	run := action.NewUninstall(helm)
	run.Timeout, run.Wait = timeout, true
	if _, err = run.Run(api.ReleaseName); err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
		return fmt.Errorf("uninstall release %s: %w", api.ReleaseName, err)
	}
	return nil
}

// inUse lists what must be undone first, each with the command that does it.
func (c *cluster) inUse(ctx context.Context) ([]string, error) {
	unpeer := fmt.Sprintf("run '%s unpeer'", c.env.name)
	unoffload := fmt.Sprintf("run '%s unoffload namespace'", c.env.name)
	checks := []struct {
		list   client.ObjectList
		what   string
		remedy string
		counts func(client.Object) bool
	}{
		{&corev1beta1.ForeignClusterList{}, "peering with", unpeer, enabledPeer},
		{&offv1beta1.NamespaceOffloadingList{}, "offloaded namespace", unoffload, nil},
		{&authv1beta1.ResourceSliceList{}, "resourceslice", unpeer, nil},
		{&netv1beta1.ConfigurationList{}, "configuration", unpeer, nil},
		{&ipamv1alpha1.IPList{}, "ip", "delete it", madeByUser},
		{&ipamv1alpha1.NetworkList{}, "network", "delete it", madeByUser},
	}
	var left []string
	for _, check := range checks {
		err := c.List(ctx, check.list)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list %T: %w", check.list, err)
		}
		if err := meta.EachListItem(check.list, func(o runtime.Object) error {
			object := o.(client.Object)
			if check.counts == nil || check.counts(object) {
				left = append(left, fmt.Sprintf("%s %s (%s)", check.what, placeOf(object), check.remedy))
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return slices.Compact(left), nil
}

// placeOf is how a user names the object: a NamespaceOffloading by its namespace.
func placeOf(o client.Object) string {
	switch {
	case o.GetNamespace() == "":
		return o.GetName()
	case o.GetName() == api.NamespaceOffloadingName:
		return o.GetNamespace()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

func enabledPeer(o client.Object) bool {
	foreign, ok := o.(*corev1beta1.ForeignCluster)
	modules := foreign.Status.Modules
	return ok && modules != nil && (modules.Networking.Enabled || modules.Authentication.Enabled || modules.Offloading.Enabled)
}

// madeByUser leaves out what came with the installation and what goes with a peering.
func madeByUser(o client.Object) bool {
	return o.GetAnnotations()[api.AnnotationPreinstalled] != api.True && len(o.GetOwnerReferences()) == 0
}

// purgeCRDs removes the kinds and with them what is left of their objects.
func (s *script) purgeCRDs(c *cluster) error {
	s.busy(nowhere, "Removing the kinds")
	crds, err := deploy.CRDs()
	if err != nil {
		return err
	}
	var work []func() error
	for _, crd := range crds {
		work = append(work, func() error {
			if _, err := c.remove(s.ctx, crd); err != nil {
				return err
			}
			return c.awaitGone(s.ctx, crd)
		})
	}
	return together(work...)
}

// purgeNamespaces removes the tenant, storage and installation namespaces.
func (s *script) purgeNamespaces(c *cluster) error {
	s.busy(nowhere, "Deleting the namespaces")
	names := []string{c.namespace}
	for _, label := range []string{api.LabelTenantNamespace, api.LabelStorageProvisioner} {
		found := &corev1.NamespaceList{}
		if err := c.List(s.ctx, found, client.MatchingLabels{label: api.True}); err != nil {
			return fmt.Errorf("list namespaces: %w", err)
		}
		for _, n := range found.Items {
			names = append(names, n.Name)
		}
	}
	var work []func() error
	for _, name := range names {
		work = append(work, func() error {
			namespace := &corev1.Namespace{}
			namespace.Name = name
			if _, err := c.remove(s.ctx, namespace); err != nil {
				return err
			}
			return c.awaitGone(s.ctx, namespace)
		})
	}
	return together(work...)
}
