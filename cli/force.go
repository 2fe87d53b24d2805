// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

func (e *env) forceCommand() *cobra.Command {
	force := group("force", "End a peering whose other cluster is gone for good")
	unpeer := &cobra.Command{Use: "unpeer <cluster-id>", Short: "End the peering with a cluster that is gone for good",
		Example: "  liqoctl force unpeer milan",
		Args:    oneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := e.confirm("force unpeer might leave the remote cluster in an inconsistent state and it",
				": "); err != nil {
				return err
			}
			return e.onCluster(cmd, func(s *script, c *cluster) error { return s.forceUnpeer(c, args[0]) })
		}}
	unpeer.ValidArgsFunction = firstOnly(e.completion(peerIDs()))
	addLiqoFlag(unpeer.Flags(), "namespace", "n", "")
	addTimeoutFlag(unpeer.Flags(), 2*time.Minute)
	e.addDryRunFlag(unpeer.Flags())
	force.AddCommand(unpeer)
	return force
}

// forceUnpeer marks the peer as permanently unreachable, so that nothing waits for it any more, and
// deletes the local objects of the peering and the tenant namespace. It sends no request to the
// peer.
func (s *script) forceUnpeer(c *cluster, id string) (err error) {
	if c.id, err = c.installedID(s.ctx); err != nil {
		return err
	}
	foreign := &corev1beta1.ForeignCluster{ObjectMeta: metaOf("", id)}
	if err := c.read(s.ctx, foreign); apierrors.IsNotFound(err) {
		return fmt.Errorf("remote cluster with ID %s not found", id)
	} else if err != nil {
		return err
	}
	if c.tenant, err = c.findTenant(s.ctx, id); err != nil {
		return err
	}
	s.info(noCluster, "Info about the remote cluster retrieved successfully")
	if err := c.annotate(s.ctx, foreign, api.AnnotationPermanentlyUnreachable, api.True); err != nil {
		return err
	}
	s.info(noCluster, "Foreign cluster declared as permanently unreachable successfully")
	if err := s.removeObjects(c, id); err != nil {
		return err
	}
	if err := s.removeNamespaces(!s.env.dry(), c); err != nil {
		return c.withLeftoversOf(err, id)
	}
	if !s.env.dry() {
		s.busy(noCluster, "Waiting until nothing is left")
		node := client.MatchingLabels{api.LabelType: api.TypeVirtualNode, api.LabelRemoteClusterID: id}
		if err := c.awaitNone(s.ctx, &corev1.NodeList{}, node); err != nil {
			return c.withLeftoversOf(err, id)
		}
	}
	s.warn(noCluster, "The remote cluster keeps its side of the peering; "+
		"if it comes back, run '%s force unpeer %s' there", s.env.name, c.id)
	s.info(noCluster, "Force unpeer executed successfully")
	return nil
}

// kindsOfPeering returns the kinds of objects that make up a peering, in the order of their
// deletion.
func kindsOfPeering() []client.ObjectList {
	return []client.ObjectList{
		&authv1beta1.ResourceSliceList{}, &offv1beta1.VirtualNodeList{}, &offv1beta1.NamespaceMapList{},
		&authv1beta1.IdentityList{}, &authv1beta1.TenantList{},
		&netv1beta1.GatewayClientList{}, &netv1beta1.GatewayServerList{}, &netv1beta1.PublicKeyList{},
		&netv1beta1.ConfigurationList{},
	}
}

// objectsTimeout is how long the deletion of the tenant namespace waits for objects, and then for
// pods.
const objectsTimeout = 10 * time.Second

// removeObjects deletes the objects of the peer. The tenant namespace would delete its objects, but
// Kubernetes is slow to check again a namespace that is not empty at once: deleting them first took
// 7 to 17 s instead of 50 s. Objects that are not gone soon are left to the namespace.
func (s *script) removeObjects(c *cluster, peer string) error {
	left, err := c.leftoversOf(s.ctx, peer)
	if err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(s.ctx, objectsTimeout)
	defer cancel()
	for _, object := range left {
		if _, err := c.remove(s.ctx, object); err != nil {
			return err
		}
		if s.env.dry() {
			continue
		}
		s.busy(noCluster, "Deleting "+c.nameOf(object))
		if object.GetNamespace() == c.tenant {
			_ = c.awaitGone(soon, object) // if it fails, the wait for the namespace reports the object
		} else if err := c.awaitGone(s.ctx, object); err != nil {
			return c.withLeftoversOf(err, peer)
		}
	}
	if c.tenant != "" && !s.env.dry() {
		soon, cancel = context.WithTimeout(s.ctx, objectsTimeout)
		defer cancel()
		_ = c.awaitNone(soon, &corev1.PodList{}, client.InNamespace(c.tenant))
	}
	return nil
}

// leftoversOf returns the remaining objects of a peering.
func (c *cluster) leftoversOf(ctx context.Context, peer string) ([]client.Object, error) {
	var out []client.Object
	for _, list := range kindsOfPeering() {
		found, err := c.all(ctx, list, ofPeer(peer))
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// withLeftoversOf adds to an error the remaining objects of the peering.
func (c *cluster) withLeftoversOf(err error, peer string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limits.explain)
	defer cancel()
	left, failed := c.leftoversOf(ctx, peer)
	if failed != nil || len(left) == 0 {
		return err
	}
	return fmt.Errorf("%w; still there: %s", err, c.namesOf(left))
}

func (c *cluster) namesOf(objects []client.Object) string {
	return someNames(textsOf(objects, c.nameOf))
}
