// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
)

// findTenant returns the name of the tenant namespace for a peer; empty if there is none. If the
// user may not list namespaces, it tries the namespace of the kubeconfig and the default name.
func (c *cluster) findTenant(ctx context.Context, peer string) (string, error) {
	found := &corev1.NamespaceList{}
	err := c.list(ctx, found, client.MatchingLabels{api.LabelTenantNamespace: api.True, api.LabelRemoteClusterID: peer})
	switch {
	case apierrors.IsForbidden(err):
		for _, name := range []string{c.current, api.TenantNamespace(peer)} {
			one := tenantNamespace(name, peer)
			err := c.Get(ctx, client.ObjectKeyFromObject(one), one)
			if err == nil && one.Labels[api.LabelTenantNamespace] == api.True &&
				one.Labels[api.LabelRemoteClusterID] == peer {
				return name, nil
			}
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
				return "", c.describe("read", one, err)
			}
		}
		return "", nil
	case err != nil:
		return "", err
	case len(found.Items) > 1:
		return "", fmt.Errorf(
			"%d namespaces of the %scluster carry the labels of the tenant namespace for %s (%s, %s …); leave one",
			len(found.Items), c.side.clusterPrefix(), peer, found.Items[0].Name, found.Items[1].Name)
	case len(found.Items) == 0:
		return "", nil
	}
	return found.Items[0].Name, nil
}

// findNetwork sets the namespace of the network objects for a peer, which may have been created by
// hand in any namespace. It leaves it empty if there are none.
func (c *cluster) findNetwork(ctx context.Context, peer string) (err error) {
	if c.network = c.chosen; c.network != "" {
		return nil
	}
	if c.tenant == "" {
		if c.tenant, err = c.findTenant(ctx, peer); err != nil {
			return err
		}
	}
	found, err := c.networkObjects(ctx, peer)
	// A user with rights in the tenant namespace only has its objects there.
	if c.network = c.tenant; apierrors.IsForbidden(err) {
		return nil
	}
	for _, objects := range found {
		if len(objects) == 0 {
			continue
		}
		if !slices.ContainsFunc(objects, func(o client.Object) bool { return o.GetNamespace() == c.tenant }) {
			c.network = objects[0].GetNamespace()
		}
		break // gateways decide: they read the others in their own namespace
	}
	return err
}

// networkObjects returns the network objects for a peer from all namespaces, by kind, gateways
// first.
func (c *cluster) networkObjects(ctx context.Context, peer string) ([][]client.Object, error) {
	lists := []client.ObjectList{&netv1beta1.GatewayServerList{}, &netv1beta1.GatewayClientList{},
		&netv1beta1.ConfigurationList{}, &netv1beta1.PublicKeyList{}}
	return collect(lists,
		func(list client.ObjectList) ([]client.Object, error) { return c.all(ctx, list, ofPeer(peer)) })
}

// needTenant sets the tenant namespace for a peer, unless the user named one, and fails without
// one.
func (c *cluster) needTenant(ctx context.Context, peer string) (err error) {
	if c.tenant != "" {
		return nil
	}
	if c.tenant, err = c.findTenant(ctx, peer); err == nil && c.tenant == "" {
		err = fmt.Errorf("the %scluster has no tenant namespace for %q; make one with kubectl (labels %s and %s) or "+
			"give --namespace",
			c.side.clusterPrefix(), peer, api.LabelTenantNamespace, api.LabelRemoteClusterID)
	}
	return err
}

// ensureTenant sets the tenant namespace for a peer. It creates it if there is none, or once it has
// been deleted.
func (c *cluster) ensureTenant(ctx context.Context, peer string) (err error) {
	if c.tenant != "" {
		return nil
	}
	if c.tenant, err = c.findTenant(ctx, peer); err != nil {
		return err
	}
	if c.tenant != "" {
		existing := tenantNamespace(c.tenant, peer)
		if c.Get(ctx, client.ObjectKeyFromObject(existing), existing) != nil || existing.DeletionTimestamp == nil {
			return nil // the requests that need it report what is wrong with it
		}
		if err := c.awaitGone(ctx, existing); err != nil {
			return err
		}
	}
	name := api.TenantNamespace(peer)
	err = c.apply(ctx, tenantNamespace(name, peer))
	if apierrors.IsForbidden(err) {
		c.env.warn(c.side, "Current user has no permissions to create a namespace in the %scluster. "+
			"Checking whether a tenant namespace has been created in advance", c.side.clusterPrefix())
		return fmt.Errorf("no tenant namespace for %q in the %scluster; ask its administrator to create namespace %s "+
			"with labels %s=%s and %s=true",
			peer, c.side.clusterPrefix(), name, api.LabelRemoteClusterID, peer, api.LabelTenantNamespace)
	}
	if err == nil {
		c.tenant = name
	}
	return err
}
