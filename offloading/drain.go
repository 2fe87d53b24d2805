// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create

// evictInterval is the time between two attempts to evict pods that disruption budgets protect.
const evictInterval = 5 * time.Second

// drain evicts the pods of virtual nodes that are to have no Node any more. That all pods are gone is
// waited for, and what happens if they do not go is decided, by the virtual node's own controller.
type drain struct{}

// Register adds the reconciler to mgr.
func (drain) Register(mgr manager.Manager) error {
	r := &drainReconciler{client: mgr.GetClient(), live: mgr.GetAPIReader()}
	return builder.ControllerManagedBy(mgr).Named("drain").WithOptions(ctl.Options()).
		For(&offloadingv1beta1.VirtualNode{}).Complete(r)
}

type drainReconciler struct {
	client client.Client
	live   client.Reader
}

// Reconcile evicts what is left on the node of one virtual node.
func (r *drainReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	vn, err := ctl.Optional(ctx, r.client, req.NamespacedName, &offloadingv1beta1.VirtualNode{})
	if err != nil || vn == nil || plan.HasNode(vn) {
		return reconcile.Result{}, err
	}
	if its, err := r.hasNode(ctx, vn); err != nil || !its {
		return reconcile.Result{}, err
	}
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": vn.Name}); err != nil {
		return reconcile.Result{}, fmt.Errorf("list pods of node %s: %w", vn.Name, err)
	}
	var errs []error
	left := plan.Draining(pods.Items)
	for _, pod := range left {
		if pod.GetDeletionTimestamp() == nil {
			errs = append(errs, r.evict(ctx, pod))
		}
	}
	if len(left) == 0 {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: evictInterval}, errors.Join(errs...)
}

// hasNode reports whether the node of the virtual node's name is its own: a real one, or that of a
// virtual node that came first, was in its way.
func (r *drainReconciler) hasNode(ctx context.Context, vn *offloadingv1beta1.VirtualNode) (bool, error) {
	node, err := ctl.Optional(ctx, r.client, types.NamespacedName{Name: vn.Name}, &corev1.Node{})
	if err != nil || node == nil || node.Labels[api.LabelType] != api.TypeVirtualNode {
		return false, err
	}
	first, err := firstNamed(ctx, r.client, vn.Name)
	return first != nil && first.UID == vn.UID, err
}

// evict asks for a pod's end. A budget that forbids it for now is no error: it is asked again.
func (r *drainReconciler) evict(ctx context.Context, pod client.Object) error {
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.GetName(), Namespace: pod.GetNamespace()},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.GetUID()))},
	}
	err := r.client.SubResource("eviction").Create(ctx, pod, eviction)
	if err == nil || apierrors.IsTooManyRequests(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("evict pod %s/%s: %w", pod.GetNamespace(), pod.GetName(), err)
}
