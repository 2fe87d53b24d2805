// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/storage/plan"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespacemaps;virtualnodes,verbs=get;list;watch

// abandoned lets claims go whose provider is not used any more: no virtual kubelet is left to do it.
type abandoned struct{}

// Register adds the reconciler to mgr.
func (abandoned) Register(mgr manager.Manager) error {
	r := &abandonedReconciler{client: mgr.GetClient(), live: mgr.GetAPIReader()}
	return builder.ControllerManagedBy(mgr).Named("abandoned-claims").WithOptions(ctl.Options()).
		For(&corev1.PersistentVolumeClaim{}).
		Watches(&offloadingv1beta1.NamespaceMap{}, handler.EnqueueRequestsFromMapFunc(r.held)).
		Watches(&offloadingv1beta1.VirtualNode{}, handler.EnqueueRequestsFromMapFunc(r.held)).Complete(r)
}

type abandonedReconciler struct {
	client client.Client
	live   client.Reader
}

// held are the claims with volumes at providers.
func (r *abandonedReconciler) held(ctx context.Context, _ client.Object) []reconcile.Request {
	var claims corev1.PersistentVolumeClaimList
	if err := r.client.List(ctx, &claims); err != nil {
		log.FromContext(ctx).Error(err, "list claims")
		return nil
	}
	var requests []reconcile.Request
	for i := range claims.Items {
		if slices.ContainsFunc(claims.Items[i].Finalizers, func(f string) bool { return strings.HasPrefix(f, api.ClaimFinalizerPrefix) }) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&claims.Items[i])})
		}
	}
	return requests
}

// Reconcile takes from one claim the finalizers nobody else would take away.
func (r *abandonedReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	claim, err := ctl.Optional(ctx, r.client, req.NamespacedName, &corev1.PersistentVolumeClaim{})
	if err != nil || claim == nil || len(claim.Finalizers) == 0 {
		return reconcile.Result{}, err
	}
	gone, err := without(ctx, r.client, claim)
	if err != nil || len(gone) == 0 {
		return reconcile.Result{}, err
	}
	// The copy may be older than the provider, and who lets go of a volume cannot take that back.
	gone, err = without(ctx, r.live, claim)
	if err != nil || len(gone) == 0 {
		return reconcile.Result{}, err
	}
	patch := client.MergeFromWithOptions(claim.DeepCopy(), client.MergeFromWithOptimisticLock{})
	claim.Finalizers = slices.DeleteFunc(claim.Finalizers, func(f string) bool { return slices.Contains(gone, f) })
	if err := r.client.Patch(ctx, claim, patch); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("release claim %s: %w", req, err)
	}
	return reconcile.Result{}, nil
}

// without are the claim's finalizers of providers that are not used any more.
func without(ctx context.Context, r client.Reader, claim *corev1.PersistentVolumeClaim) ([]string, error) {
	var maps offloadingv1beta1.NamespaceMapList
	if err := r.List(ctx, &maps); err != nil {
		return nil, fmt.Errorf("list namespace maps: %w", err)
	}
	var nodes offloadingv1beta1.VirtualNodeList
	if err := r.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list virtual nodes: %w", err)
	}
	return plan.Abandoned(claim, maps.Items, nodes.Items), nil
}
