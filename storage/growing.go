// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/storage/plan"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// growing lets the volumes of claims grow. It patches single fields of objects that have other
// writers, so it is no controller that applies whole ones.
type growing struct {
	Options
	client client.Client
	events events.EventRecorder
}

// Register adds the reconciler to mgr.
func (g growing) Register(mgr manager.Manager) error {
	g.client, g.events = mgr.GetClient(), ctl.Recorder(mgr, "liqo-growing-volume")
	return builder.ControllerManagedBy(mgr).Named("growing-volume").WithOptions(ctl.Options()).
		For(&corev1.PersistentVolumeClaim{}).
		Watches(&corev1.PersistentVolumeClaim{}, handler.EnqueueRequestsFromMapFunc(g.concerned)).
		Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(g.concerned)).
		Complete(g)
}

// concerned are the claims a class, or a claim that backs another, may mean something to.
func (g growing) concerned(ctx context.Context, obj client.Object) []reconcile.Request {
	_, class := obj.(*storagev1.StorageClass)
	if !class && obj.GetNamespace() != g.Namespace {
		return nil
	}
	var claims corev1.PersistentVolumeClaimList
	if err := g.client.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "list claims")
		return nil
	}
	var requests []reconcile.Request
	for i := range claims.Items {
		claim := &claims.Items[i]
		if plan.Grows(claim) && (class || string(claim.UID) == obj.GetName()) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
		}
	}
	return requests
}

// Reconcile lets the volume of one claim grow.
func (g growing) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := ctl.Optional(ctx, g.client, req.NamespacedName, &corev1.PersistentVolumeClaim{})
	if err != nil || claim == nil || !plan.Grows(claim) {
		return reconcile.Result{}, err
	}
	in, err := g.gather(ctx, claim)
	if err != nil {
		return reconcile.Result{}, err
	}
	out := plan.Grow(in)
	if out.Refusal != "" {
		g.events.Eventf(claim, nil, corev1.EventTypeWarning, "VolumeResizeFailed", "Grow", "%s", out.Refusal)
	}
	if out.Backing != nil {
		err = g.client.Patch(ctx, out.Backing, client.MergeFrom(in.Backing))
	}
	if out.Volume != nil && err == nil {
		err = g.client.Patch(ctx, out.Volume, client.MergeFrom(in.Volume))
	}
	if out.Status != nil && err == nil {
		err = g.client.Status().Patch(ctx, out.Status, client.MergeFrom(claim))
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("let the volume of claim %s grow: %w", req, err)
	}
	return reconcile.Result{}, nil
}

func (g growing) gather(ctx context.Context, root *corev1.PersistentVolumeClaim) (plan.GrowInput, error) {
	in := plan.GrowInput{Root: root}
	var err error
	if in.Volume, err = ctl.Optional(ctx, g.client, types.NamespacedName{Name: root.Spec.VolumeName}, &corev1.PersistentVolume{}); err != nil {
		return in, err
	}
	in.Backing, err = ctl.Optional(ctx, g.client, types.NamespacedName{Namespace: g.Namespace, Name: string(root.UID)}, &corev1.PersistentVolumeClaim{})
	if err != nil || in.Backing == nil {
		return in, err
	}
	if name := in.Backing.Spec.StorageClassName; name != nil {
		if in.Class, err = ctl.Optional(ctx, g.client, types.NamespacedName{Name: *name}, &storagev1.StorageClass{}); err != nil {
			return in, err
		}
	}
	in.Behind, err = ctl.Optional(ctx, g.client, types.NamespacedName{Name: in.Backing.Spec.VolumeName}, &corev1.PersistentVolume{})
	return in, err
}
