// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/packed"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// pendingPods helps pods that wait: those admission did not see as their namespace is offloaded now,
// and those the provider has no room for. They are found in an informer of their own, which holds only
// pods that have not started: few in any cluster, gone as soon as they run.
type pendingPods struct{ runtimeClass string }

// Register adds the reconcilers and their informer to mgr.
func (p pendingPods) Register(mgr manager.Manager) error {
	pending, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {Field: fields.OneTermEqualSelector("status.phase", string(corev1.PodPending))},
		},
		DefaultTransform: cache.TransformStripManagedFields(),
		NewInformer:      packed.Informer,
	})
	if err != nil {
		return fmt.Errorf("make informer of pending pods: %w", err)
	}
	if err := mgr.Add(waiting{pending}); err != nil {
		return fmt.Errorf("add informer of pending pods: %w", err)
	}
	r := pendingReconciler{
		pendingPods: p, pending: pending, client: mgr.GetClient(), reader: readerOf(mgr), recorder: ctl.Recorder(mgr, "liqo-offloading"),
	}
	return errors.Join(r.registerEarlier(mgr), r.registerUnplaced(mgr))
}

// waiting fills a cache also in a replica that waits for its turn: controllers, which begin to read there,
// end the process when that takes too long. The manager knows it of its own cache only.
type waiting struct{ cache.Cache }

// NeedLeaderElection tells the manager so.
func (waiting) NeedLeaderElection() bool { return false }

type pendingReconciler struct {
	pendingPods
	pending  cache.Cache
	client   client.Client
	reader   ctl.Reader
	recorder events.EventRecorder
}

func (r pendingReconciler) registerEarlier(mgr manager.Manager) error {
	options := ctl.Options()
	options.Reconciler = reconcile.Func(r.earlier)
	c, err := controller.New("earlier-pods", mgr, options)
	if err != nil {
		return fmt.Errorf("make controller of pending pods: %w", err)
	}
	if err := c.Watch(source.Kind(r.pending, &corev1.Pod{}, &handler.TypedEnqueueRequestForObject[*corev1.Pod]{})); err != nil {
		return fmt.Errorf("watch pending pods: %w", err)
	}
	return c.Watch(source.Kind(mgr.GetCache(), &offloadingv1beta1.NamespaceOffloading{},
		handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, o *offloadingv1beta1.NamespaceOffloading) []reconcile.Request {
			return r.podsOf(ctx, o.Namespace)
		})))
}

func (r pendingReconciler) podsOf(ctx context.Context, namespace string) []reconcile.Request {
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

// earlier carries out what is decided about one pod that admission would treat otherwise now.
func (r pendingReconciler) earlier(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	pod, err := ctl.Optional(ctx, r.pending, req.NamespacedName, &corev1.Pod{})
	if err != nil || pod == nil {
		return reconcile.Result{}, err
	}
	offloading, err := offloadingOf(ctx, r.client, req.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	in := plan.EarlierPodInput{Pod: pod, Offloading: offloading, RuntimeClass: r.runtimeClass, Now: time.Now()}
	if pod.Spec.NodeName == "" {
		if in.Travels, err = travels(ctx, r.reader, pod); err != nil {
			return reconcile.Result{}, err
		}
	}
	treatment, after := plan.EarlierPod(in)
	switch treatment {
	case plan.Tolerate:
		wanted := plan.AdmitPod(pod, offloading.Spec, r.runtimeClass, in.Travels)
		err = r.client.Patch(ctx, wanted, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{}))
	case plan.Replace:
		err = r.replace(ctx, pod)
		r.recorder.Eventf(pod, nil, corev1.EventTypeNormal, "OffloadingReplaced", "Offload",
			"deleted, so that its controller makes one that may run where its namespace is offloaded to now")
	case plan.Tell:
		r.recorder.Eventf(pod, nil, corev1.EventTypeWarning, "CreatedBeforeOffloading", "Offload",
			"created before its namespace was offloaded as it is now, and its affinity cannot be changed; delete it and create it again")
	}
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("treat pending pod: %w", err)
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// replace deletes a pod whose controller makes another. A Job would count it as failed; without the labels
// the Job looks for it lets the pod go.
func (r pendingReconciler) replace(ctx context.Context, pod *corev1.Pod) error {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "Job" {
		free := pod.DeepCopy()
		free.Labels = nil
		metav1.SetMetaDataAnnotation(&free.ObjectMeta, plan.AnnotationLetGo, api.True)
		if err := r.client.Patch(ctx, free, client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})); err != nil {
			return err
		}
	}
	return r.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
}

func (r pendingReconciler) registerUnplaced(mgr manager.Manager) error {
	options := ctl.Options()
	options.Reconciler = reconcile.Func(r.unplaced)
	c, err := controller.New("unplaced-pods", mgr, options)
	if err != nil {
		return fmt.Errorf("make controller of unplaced pods: %w", err)
	}
	nodeOf := func(_ context.Context, pod *corev1.Pod) []reconcile.Request {
		if plan.NoRoom(pod) == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pod.Spec.NodeName}}}
	}
	if err := c.Watch(source.Kind(r.pending, &corev1.Pod{}, handler.TypedEnqueueRequestsFromMapFunc(nodeOf))); err != nil {
		return fmt.Errorf("watch unplaced pods: %w", err)
	}
	return c.Watch(source.Kind(mgr.GetCache(), &corev1.Node{}, &handler.TypedEnqueueRequestForObject[*corev1.Node]{}))
}

// conflictRetry is how long to wait before retrying a write after a conflict. A stale cache sends an event, but a
// webhook that refuses with 409 does not.
const conflictRetry = time.Second

// unplaced carries out what is decided about the pods of one virtual node that have no place at its
// provider. The Node is tainted before its pods are deleted: others come at once.
func (r pendingReconciler) unplaced(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	node, err := ctl.Optional(ctx, r.client, req.NamespacedName, &corev1.Node{})
	if err != nil || node == nil || node.Labels[api.LabelType] != api.TypeVirtualNode {
		return reconcile.Result{}, err
	}
	var pods corev1.PodList
	if err := r.pending.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list pending pods: %w", err)
	}
	found := plan.Unplaced(plan.UnplacedInput{Node: node, Pods: pods.Items, Now: time.Now()})
	if !equality.Semantic.DeepEqual(found.Taints, node.Spec.Taints) {
		tainted := node.DeepCopy()
		tainted.Spec.Taints = found.Taints
		err := r.client.Patch(ctx, tainted, client.MergeFromWithOptions(node, client.MergeFromWithOptimisticLock{}))
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: conflictRetry}, nil
		}
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("taint node %s: %w", node.Name, err)
		}
	}
	for _, pod := range found.Replace {
		err := r.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID})
		if apierrors.IsConflict(err) {
			found.After = conflictRetry
			continue
		}
		if apierrors.IsNotFound(err) {
			continue // seen too late
		}
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("delete pod without a place: %w", err)
		}
		r.recorder.Eventf(pod, nil, corev1.EventTypeWarning, "ProviderHasNoRoom", "Offload",
			"deleted, so that its controller makes one that may run elsewhere; the provider says: %.500s", plan.NoRoom(pod)) // an event holds 1 kB
	}
	return reconcile.Result{RequeueAfter: found.After}, nil
}
