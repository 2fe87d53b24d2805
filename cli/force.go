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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

func (e *env) forceCommand() *cobra.Command {
	force := group("force", "Do without the other side what needs both")
	var namespace string
	var timeout time.Duration
	unpeer := &cobra.Command{Use: "unpeer <cluster-id>", Short: "End the peering with a cluster that is gone for good",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := e.confirm("force unpeer might leave the remote cluster in an inconsistent state and it",
				": "); err != nil {
				return err
			}
			return e.forceUnpeer(cmd.Context(), namespace, args[0], timeout)
		}}
	unpeer.ValidArgsFunction = firstOnly(e.completion(peerIDs()))
	unpeer.Flags().StringVarP(&namespace, "namespace", "n", api.Namespace, "Namespace Liqo is installed in")
	unpeer.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "How long to wait in all")
	force.AddCommand(unpeer)
	return force
}

// forceUnpeer declares the peer dead, so that nothing waits for it any more, and deletes the tenant
// namespace, with which the peering goes on this side. The peer is not asked for anything.
func (e *env) forceUnpeer(ctx context.Context, namespace, id string, timeout time.Duration) error {
	s, stop := e.newScript(ctx, timeout)
	defer stop()
	c, err := e.cluster(e.local, nowhere, namespace)
	if err != nil {
		return err
	}
	if c.id, err = c.installedID(s.ctx); err != nil {
		return err
	}
	foreign := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: id}}
	err = c.Get(s.ctx, client.ObjectKeyFromObject(foreign), foreign)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("remote cluster with ID %s not found", id)
	}
	if err != nil {
		return c.describe("read", foreign, err)
	}
	if c.tenant, err = c.findTenant(s.ctx, id); err != nil {
		return err
	}
	s.info(nowhere, "Info about the remote cluster retrieved successfully")
	if err := c.declareDead(s.ctx, foreign, true); err != nil {
		return err
	}
	s.info(nowhere, "Foreign cluster declared as permanently unreachable successfully")
	if err := s.dropObjects(c, id); err != nil {
		return err
	}
	if err := s.dropNamespace(c, true); err != nil {
		return c.withRest(err, id)
	}
	s.busy(nowhere, "Waiting until nothing is left")
	node := client.MatchingLabels{api.LabelType: api.TypeVirtualNode, api.LabelRemoteClusterID: id}
	if err := c.awaitNone(s.ctx, &corev1.NodeList{}, node); err != nil {
		return c.withRest(err, id)
	}
	s.warn(nowhere, "The remote cluster keeps its side of the peering; "+
		"if it comes back, run '%s force unpeer %s' there", e.name, c.id)
	s.info(nowhere, "Force unpeer executed successfully")
	return nil
}

// declareDead sets or clears the mark that a peer is gone for good.
func (c *cluster) declareDead(ctx context.Context, foreign *corev1beta1.ForeignCluster, dead bool) error {
	before := foreign.DeepCopy()
	if dead {
		metav1.SetMetaDataAnnotation(&foreign.ObjectMeta, api.AnnotationPermanentlyUnreachable, api.True)
	} else {
		delete(foreign.Annotations, api.AnnotationPermanentlyUnreachable)
	}
	return c.describe("update", foreign, c.Patch(ctx, foreign, client.MergeFrom(before)))
}

// remnants are the kinds of objects that make up a peering, in the order in which they go.
func remnants() []client.ObjectList {
	return []client.ObjectList{
		&authv1beta1.ResourceSliceList{}, &offv1beta1.VirtualNodeList{}, &offv1beta1.NamespaceMapList{},
		&authv1beta1.IdentityList{}, &authv1beta1.TenantList{},
		&netv1beta1.GatewayClientList{}, &netv1beta1.GatewayServerList{}, &netv1beta1.PublicKeyList{},
		&netv1beta1.ConfigurationList{},
	}
}

// objectsFirst is how long the tenant namespace is not asked to go: for objects, and then for pods.
const objectsFirst = 10 * time.Second

// dropObjects deletes what concerns the peer. What lies in the tenant namespace would go with it, but Kubernetes
// is slow to look again at a namespace that is not empty at once: 50 s in all became 7 to 17 (measured). What does
// not go soon is left to it.
func (s *script) dropObjects(c *cluster, peer string) error {
	left, err := c.remnantsOf(s.ctx, peer)
	if err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(s.ctx, objectsFirst)
	defer cancel()
	for _, object := range left {
		if _, err := c.remove(s.ctx, object); err != nil {
			return err
		}
		s.busy(nowhere, "Deleting "+c.nameOf(object))
		if object.GetNamespace() == c.tenant {
			_ = c.awaitGone(soon, object) // the namespace waits for it, and says so
		} else if err := c.awaitGone(s.ctx, object); err != nil {
			return c.withRest(err, peer)
		}
	}
	if c.tenant != "" {
		soon, cancel = context.WithTimeout(s.ctx, objectsFirst)
		defer cancel()
		_ = c.awaitNone(soon, &corev1.PodList{}, client.InNamespace(c.tenant))
	}
	return nil
}

// remnantsOf finds what this cluster still has of a peering.
func (c *cluster) remnantsOf(ctx context.Context, peer string) ([]client.Object, error) {
	var out []client.Object
	for _, list := range remnants() {
		found, err := c.all(ctx, list, ofPeer(peer))
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// withRest adds to an error what is left of the peering.
func (c *cluster) withRest(err error, peer string) error {
	ctx, cancel := context.WithTimeout(context.Background(), explainTimeout)
	defer cancel()
	left, failed := c.remnantsOf(ctx, peer)
	if failed != nil || len(left) == 0 {
		return err
	}
	return fmt.Errorf("%w; still there: %s", err, c.namesOf(left))
}

func (c *cluster) namesOf(objects []client.Object) string {
	var names []string
	for _, object := range objects {
		names = append(names, c.nameOf(object))
	}
	return someNames(names)
}
