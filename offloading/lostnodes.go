// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch

// lostProviders marks the pods of a virtual node whose provider is lost, as consumer.
type lostProviders struct{}

// Register adds the reconciler to mgr.
func (lostProviders) Register(mgr manager.Manager) error {
	virtual := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetLabels()[api.LabelType] == api.TypeVirtualNode })
	r := &lostProviderReconciler{client: mgr.GetClient(), live: mgr.GetAPIReader()}
	return builder.ControllerManagedBy(mgr).Named("lost-providers").WithOptions(ctl.Options()).
		For(&corev1.Node{}, builder.WithPredicates(virtual, readyChanges)).Complete(r)
}

// readyChanges leaves of the updates of nodes those after which a pod may be lost.
var readyChanges = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return plan.ReadyChanges(e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node))
}}

type lostProviderReconciler struct {
	client client.Client
	live   client.Reader
}

// lostCheck is between two looks at the pods of a lost provider: one may come to be offloaded only then, for it is
// the provider's first word of a pod that makes it so.
const lostCheck = 10 * time.Second

// Reconcile labels the offloaded pods of one virtual node. The cache holds no such labels of users' pods;
// virtual nodes become ready, and cease to be, rarely.
func (r *lostProviderReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node, err := ctl.Optional(ctx, r.client, req.NamespacedName, &corev1.Node{})
	if err != nil || node == nil {
		return reconcile.Result{}, err
	}
	var pods metav1.PartialObjectMetadataList
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := r.live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node.Name}, client.HasLabels{api.LabelShadowPod}); err != nil {
		return reconcile.Result{}, fmt.Errorf("list pods of node %s: %w", node.Name, err)
	}
	result, errs := reconcile.Result{}, []error(nil)
	if plan.Lost(node) {
		result.RequeueAfter = lostCheck
	}
	for i := range pods.Items {
		lost, differs := plan.RemoteUnavailable(&pods.Items[i], node)
		if differs {
			errs = append(errs, r.label(ctx, &pods.Items[i], lost))
		}
	}
	return result, errors.Join(errs...)
}

// label says that a pod is lost, or takes it back; of the pod that was seen, not of another of its name.
func (r *lostProviderReconciler) label(ctx context.Context, pod *metav1.PartialObjectMetadata, lost bool) error {
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	before := pod.DeepCopy()
	before.UID = "" // what differs names it
	delete(pod.Labels, api.LabelRemoteUnavailable)
	if lost {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, api.LabelRemoteUnavailable, api.True)
	}
	err := r.client.Patch(ctx, pod, client.MergeFrom(before))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("label pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// lostPods ends, as provider, the pods of consumers that terminate on a node that is not ready:
// nothing else starts others while they are there.
type lostPods struct{}

// Register adds the reconciler to mgr.
func (lostPods) Register(mgr manager.Manager) error {
	r := &lostPodReconciler{client: mgr.GetClient()}
	terminating := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetDeletionTimestamp() != nil })
	return builder.ControllerManagedBy(mgr).Named("lost-pods").WithOptions(ctl.Options()).
		For(&corev1.Pod{}, builder.WithPredicates(terminating)).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.podsOf), builder.WithPredicates(readyChanges)).Complete(r)
}

type lostPodReconciler struct{ client client.Client }

func (r *lostPodReconciler) podsOf(ctx context.Context, node client.Object) []reconcile.Request {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.MatchingLabels{api.LabelManagedBy: api.ManagedByShadowPod}, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	var requests []reconcile.Request
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName == node.GetName() && pods.Items[i].DeletionTimestamp != nil {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pods.Items[i])})
		}
	}
	return requests
}

// Reconcile ends one pod without grace, if it is lost.
func (r *lostPodReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod, err := ctl.Optional(ctx, r.client, req.NamespacedName, &corev1.Pod{})
	if err != nil || pod == nil || pod.DeletionTimestamp == nil {
		return reconcile.Result{}, err
	}
	node, err := ctl.Optional(ctx, r.client, types.NamespacedName{Name: pod.Spec.NodeName}, &corev1.Node{})
	if err != nil || !plan.LostPod(pod, node) {
		return reconcile.Result{}, err
	}
	err = r.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("delete lost pod: %w", err)
	}
	log.FromContext(ctx).Info("lost pod deleted", "node", pod.Spec.NodeName)
	return reconcile.Result{}, nil
}
