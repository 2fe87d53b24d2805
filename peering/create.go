// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
)

// creator makes the ForeignCluster of a peer when the first object about it appears. There is
// no root object yet that a plan could hang on, and the ForeignCluster outlives every object
// that led to it: hence no plan.
type creator struct {
	namespace string
	client    client.Client
	// live reads the mark of an uninstall, about which a cache must not be late.
	live client.Reader
}

// Register adds the creator to the manager.
func (c creator) Register(mgr manager.Manager) error {
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()
	b := builder.ControllerManagedBy(mgr).Named("foreigncluster-create").
		WithOptions(ctl.Options())
	for _, kind := range evidence() {
		b = b.Watches(kind, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
			return peer(obj.GetLabels()[api.LabelRemoteClusterID])
		}), builder.WithPredicates(appearance()))
	}
	return b.Complete(c)
}

// appearance passes on objects of a peer that are there to stay.
func appearance() predicate.Predicate {
	proof := func(obj client.Object) bool {
		_, node := obj.(*corev1.Node)
		return obj.GetDeletionTimestamp() == nil && (!node || obj.GetLabels()[api.LabelType] == api.TypeVirtualNode)
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return proof(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return proof(e.ObjectNew) },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

// +kubebuilder:rbac:groups=core.liqo.io,resources=foreignclusters,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch

// Reconcile makes the ForeignCluster named by the request unless it is there, or Liqo is being
// uninstalled.
func (c creator) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	err := c.client.Get(ctx, req.NamespacedName, &corev1beta1.ForeignCluster{})
	if err == nil || !apierrors.IsNotFound(err) {
		return reconcile.Result{}, err
	}
	if err := api.ValidateClusterID(req.Name); err != nil {
		log.FromContext(ctx).Info("ignored a peer whose ID cannot be one", "error", err.Error())
		return reconcile.Result{}, nil
	}
	var self appsv1.Deployment
	name := client.ObjectKey{Namespace: c.namespace, Name: api.ControllerManagerName}
	if err := c.live.Get(ctx, name, &self); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("get deployment %s: %w", name, err)
	}
	if self.Annotations[api.AnnotationUninstalling] == "true" {
		return reconcile.Result{}, nil
	}
	err = c.client.Create(ctx, &corev1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: req.Name, Labels: map[string]string{
			api.LabelRemoteClusterID: req.Name, api.LabelManaged: "true",
		}},
		Spec: corev1beta1.ForeignClusterSpec{ClusterID: req.Name},
	}, client.FieldOwner("liqo/foreigncluster-create"))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return reconcile.Result{}, fmt.Errorf("create foreign cluster %s: %w", req.Name, err)
	}
	return reconcile.Result{}, nil
}

// peerOf maps an object to the ForeignCluster it concerns: by its label, else by that of the
// tenant namespace it lies in.
func peerOf(ctx context.Context, r client.Reader, obj client.Object) []reconcile.Request {
	if id := obj.GetLabels()[api.LabelRemoteClusterID]; id != "" || obj.GetNamespace() == "" {
		return peer(id)
	}
	var namespace corev1.Namespace
	if err := r.Get(ctx, client.ObjectKey{Name: obj.GetNamespace()}, &namespace); err != nil {
		if client.IgnoreNotFound(err) != nil {
			log.FromContext(ctx).Error(err, "get namespace")
		}
		return nil
	}
	if namespace.Labels[api.LabelTenantNamespace] != "true" {
		return nil
	}
	return peer(namespace.Labels[api.LabelRemoteClusterID])
}

// peer asks for the ForeignCluster of an ID, which is also its name.
func peer(id string) []reconcile.Request {
	if id == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: id}}}
}
