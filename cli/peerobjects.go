// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	"github.com/liqo-go/liqo/view"
)

// everywhere: networks joined by hand need no tenant namespace; the peer's label is what counts.
const everywhere = metav1.NamespaceAll

// objectsOfPeer reads the objects that concern a peer, from all namespaces.
func (c *cluster) objectsOfPeer(ctx context.Context, peer string) (*view.PeerObjects, error) {
	o := &view.PeerObjects{}
	lists := []client.ObjectList{&o.Configurations, &o.Servers, &o.Clients, &o.Fabrics, &o.Connections, &o.Tenants,
		&o.Identities, &o.VirtualNodes, &o.Slices}
	return o, inParallel(func() error {
		return onEach(lists, func(list client.ObjectList) error {
			err := c.listOf(ctx, everywhere, peer, list)
			if meta.IsNoMatchError(err) { // of a kind that another version of Liqo lacks there are none
				return nil
			}
			return err
		})
	}, func() error {
		o.SharedKey.ObjectMeta = metaOf(c.namespace, api.AuthenticationKeysSecret)
		err := c.Get(ctx, client.ObjectKeyFromObject(&o.SharedKey), &o.SharedKey)
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return nil
		}
		return c.describe("read", &o.SharedKey, err)
	}, func() error {
		err := c.List(ctx, &o.Kubeconfigs, ofPeer(peer),
			client.MatchingLabels{api.LabelIdentityType: string(authv1beta1.IdentityControlPlane)})
		if apierrors.IsForbidden(err) {
			return nil
		}
		return c.listing(&o.Kubeconfigs, err)
	})
}
