// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// earlierPods helps pods admission did not see. They are found in an informer of their own, which
// holds only pods that have no node yet: few in any cluster, gone as soon as they are scheduled.
type earlierPods struct{ runtimeClass string }

// Register adds the reconciler and its informer to mgr.
func (e earlierPods) Register(mgr manager.Manager) error {
	pending, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject:         map[client.Object]cache.ByObject{&corev1.Pod{}: {Field: fields.OneTermEqualSelector("spec.nodeName", "")}},
		DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return fmt.Errorf("make informer of pending pods: %w", err)
	}
	if err := mgr.Add(pending); err != nil {
		return fmt.Errorf("add informer of pending pods: %w", err)
	}
	r := &earlierPodReconciler{
		earlierPods: e, pending: pending, client: mgr.GetClient(), recorder: mgr.GetEventRecorder("liqo-offloading"),
	}
	c, err := controller.New("earlier-pods", mgr, controller.Options{Reconciler: r, SkipNameValidation: new(true)})
	if err != nil {
		return fmt.Errorf("make controller of pending pods: %w", err)
	}
	if err := c.Watch(source.Kind(pending, &corev1.Pod{}, &handler.TypedEnqueueRequestForObject[*corev1.Pod]{})); err != nil {
		return fmt.Errorf("watch pending pods: %w", err)
	}
	offloadings := source.Kind(mgr.GetCache(), &offloadingv1beta1.NamespaceOffloading{},
		handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, o *offloadingv1beta1.NamespaceOffloading) []reconcile.Request {
			return r.podsOf(ctx, o.Namespace)
		}))
	return c.Watch(offloadings)
}

type earlierPodReconciler struct {
	earlierPods
	pending  cache.Cache
	client   client.Client
	recorder events.EventRecorder
}

func (r *earlierPodReconciler) podsOf(ctx context.Context, namespace string) []reconcile.Request {
	var list corev1.PodList
	if err := r.pending.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		log.FromContext(ctx).Error(err, "list pending pods")
		return nil
	}
	requests := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return requests
}

// Reconcile carries out what is decided about one pending pod.
func (r *earlierPodReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod, err := optional(ctx, r.pending, req.NamespacedName, &corev1.Pod{})
	if err != nil || pod == nil {
		return reconcile.Result{}, err
	}
	offloading, err := offloadingOf(ctx, r.client, req.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	in := plan.EarlierPodInput{Pod: pod, Offloading: offloading, RuntimeClass: r.runtimeClass, Now: time.Now()}
	treatment, after := plan.EarlierPod(in)
	switch treatment {
	case plan.Tolerate:
		wanted := plan.AdmitPod(pod, offloading.Spec, r.runtimeClass)
		err = r.client.Patch(ctx, wanted, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{}))
	case plan.Replace:
		err = r.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
		r.recorder.Eventf(pod, nil, corev1.EventTypeNormal, "OffloadingReplaced", "Offload",
			"deleted, so that its controller makes one that may run in other clusters")
	case plan.Tell:
		r.recorder.Eventf(pod, nil, corev1.EventTypeWarning, "CreatedBeforeOffloading", "Offload",
			"created before its namespace was offloaded, and its affinity cannot be changed; delete it and create it again")
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("treat pending pod: %w", err)
	}
	return reconcile.Result{RequeueAfter: after}, nil
}
