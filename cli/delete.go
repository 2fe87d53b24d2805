// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// deleteObject deletes an object of a kind; title names the kind in messages. Without a namespace,
// all are searched.
func deleteObject(kind client.Object, title string) func(*single) work {
	return func(o *single) work {
		o.completes(o.env.namesOf(kind))
		o.deletedFlag()
		o.Flags().Var((*clusterID)(&o.peer), "remote-cluster-id", "Cluster ID of the peer")
		return func(s *script, c *cluster) error {
			object := kind.DeepCopyObject().(client.Object)
			object.SetName(o.name)
			object.SetNamespace(c.tenant)
			if c.tenant == "" {
				if err := c.locate(s.ctx, object); err != nil {
					return err
				}
			}
			if removes := nodesOf(object); removes != nil {
				err := s.confirmNodes(c, "delete", func(r *placement) {
					r.nodes.Items = slices.DeleteFunc(r.nodes.Items, removes)
				})
				if err != nil {
					return err
				}
			}
			found, err := c.remove(s.ctx, object)
			if err != nil {
				return err
			}
			if !found {
				return fmt.Errorf("%s not found", c.nameOf(object))
			}
			s.busy(noCluster, "Deleting "+o.Name())
			if !s.env.dry() {
				if err := c.awaitGone(s.ctx, object); err != nil {
					return err
				}
			}
			s.info(noCluster, "%s deleted", title)
			return s.env.printStored(o.output, object)
		}
	}
}

// nodesOf returns which virtual nodes are removed with an object; nil if no object of its kind
// removes any. Volumes are lost where such a node is the only one that extends a namespace to their
// provider.
func nodesOf(object client.Object) (removes func(offv1beta1.VirtualNode) bool) {
	switch object.(type) {
	case *offv1beta1.VirtualNode:
		return func(n offv1beta1.VirtualNode) bool {
			return n.Namespace == object.GetNamespace() && n.Name == object.GetName()
		}
	case *authv1beta1.ResourceSlice:
		return func(n offv1beta1.VirtualNode) bool {
			return n.Namespace == object.GetNamespace() && n.Labels[api.LabelResourceSliceName] == object.GetName()
		}
	}
	return nil
}

// confirmNodeChange asks before volumes are lost because a namespace no longer selects the node as
// it will be.
func (s *script) confirmNodeChange(c *cluster, node *offv1beta1.VirtualNode) error {
	before := &offv1beta1.VirtualNode{}
	if err := c.Get(s.ctx, client.ObjectKeyFromObject(node), before); err != nil {
		return client.IgnoreNotFound(err)
	}
	return s.confirmNodes(c, "create", func(r *placement) {
		for i := range r.nodes.Items {
			if n := &r.nodes.Items[i]; n.Namespace == node.Namespace && n.Name == node.Name {
				n.Spec.Labels = node.Spec.Labels
			}
		}
		if n, ok := r.byName[node.Name]; ok {
			n.Labels = maps.Clone(n.Labels)
			for key := range before.Spec.Labels {
				delete(n.Labels, key)
			}
			r.byName[node.Name] = n
		}
	})
}

// confirmNodes asks before volumes are lost because a change of virtual nodes takes namespaces from
// their providers.
func (s *script) confirmNodes(c *cluster, verb string, change func(*placement)) error {
	r, err := c.placement(s.ctx)
	switch {
	case apierrors.IsForbidden(err):
		s.warn(c.side, "Which volumes will be lost cannot be told: %v", err)
		return s.confirm(verb)
	case err != nil:
		return err
	}
	return s.confirmLosses(c, verb, r.losses(change))
}
