// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/peering/plan"
)

// +kubebuilder:rbac:groups=core.liqo.io,resources=foreignclusters,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch

// creation creates the ForeignCluster of a peer when the first object about the peer appears. It is
// not deleted with such an object. If a user deletes it, the next such object creates it again.
func (o Options) creation() ctl.Controller[*corev1beta1.ForeignCluster, plan.CreationInput] {
	row := ctl.Controller[*corev1beta1.ForeignCluster, plan.CreationInput]{
		Name: "foreigncluster-create", Quiet: true, Absent: true,
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1beta1.ForeignCluster) (plan.CreationInput, error) {
			in := plan.CreationInput{Root: root}
			if root.UID != "" {
				return in, nil
			}
			// Read live: a stale cache may not show yet that Liqo is being uninstalled.
			name := types.NamespacedName{Namespace: o.LiqoNamespace, Name: api.ControllerManagerName}
			self, err := ctl.Optional(ctx, r.Live, name, &appsv1.Deployment{})
			if err != nil {
				return in, fmt.Errorf("look for an uninstall: %w", err)
			}
			in.Uninstalling = self != nil && self.Annotations[api.AnnotationUninstalling] == api.True
			return in, nil
		},
		Plan: plan.Creation,
	}
	for _, kind := range evidence() {
		row.Watches = append(row.Watches, ctl.Watch{Kind: kind, Relevant: appears, Map: labelledPeer})
	}
	return row
}

// appears selects creations and updates of objects that are not being deleted; of Nodes, only
// virtual ones.
func appears(_, after client.Object) bool {
	_, node := after.(*corev1.Node)
	return after != nil && after.GetDeletionTimestamp() == nil &&
		(!node || after.GetLabels()[api.LabelType] == api.TypeVirtualNode)
}

// labelledPeer maps an object to the ForeignCluster that its label names.
func labelledPeer(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
	return peer(obj.GetLabels()[api.LabelRemoteClusterID])
}

// peerOf maps an object to the ForeignCluster that its label names, or else the label of its tenant
// namespace. It ignores objects whose namespace is being deleted, because events of the Namespace follow.
func peerOf(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
	id := obj.GetLabels()[api.LabelRemoteClusterID]
	if obj.GetNamespace() == "" {
		return peer(id)
	}
	var namespace corev1.Namespace
	err := r.Get(ctx, client.ObjectKey{Name: obj.GetNamespace()}, &namespace)
	if client.IgnoreNotFound(err) != nil {
		log.FromContext(ctx).Error(err, "get namespace")
	}
	switch {
	case namespace.DeletionTimestamp != nil:
		return nil
	case id == "" && namespace.Labels[api.LabelTenantNamespace] == "true":
		id = namespace.Labels[api.LabelRemoteClusterID]
	}
	return peer(id)
}

// peer returns a request for the ForeignCluster of an ID, which is also its name.
func peer(id string) []reconcile.Request {
	if id == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: id}}}
}
