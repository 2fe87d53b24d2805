// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete

// takenBack ends, as provider, the pods in a namespace that is taken back from a consumer, in bounded time. They
// would hold the namespace for as long as the consumer lets them end.
type takenBack struct {
	client client.Client
	now    func() time.Time
}

// Register adds the reconciler to mgr.
func (takenBack) Register(mgr manager.Manager) error {
	terminating := predicate.NewPredicateFuncs(func(obj client.Object) bool {
		return obj.GetDeletionTimestamp() != nil && plan.MadeForConsumer(obj)
	})
	return builder.ControllerManagedBy(mgr).Named("taken-back").WithOptions(ctl.Options()).
		For(&corev1.Namespace{}, builder.WithPredicates(terminating)).Complete(takenBack{mgr.GetClient(), time.Now})
}

// Reconcile ends the pods of one namespace, once their time is over.
func (r takenBack) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	namespace, err := ctl.Optional(ctx, r.client, req.NamespacedName, &corev1.Namespace{})
	if err != nil || namespace == nil || namespace.DeletionTimestamp == nil || !plan.MadeForConsumer(namespace) {
		return reconcile.Result{}, err
	}
	grace, after := plan.TakenBack(namespace, r.now())
	if grace == nil {
		return reconcile.Result{RequeueAfter: after}, nil
	}
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.InNamespace(namespace.Name), client.MatchingLabels{api.LabelManagedBy: api.ManagedByShadowPod},
		client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, fmt.Errorf("list pods in %s: %w", namespace.Name, err)
	}
	var errs []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		if *grace > 0 && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds <= *grace {
			continue // it is being killed
		}
		err := r.client.Delete(ctx, pod, client.GracePeriodSeconds(*grace), client.Preconditions{UID: &pod.UID})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	if len(pods.Items) > 0 {
		log.FromContext(ctx).Info("pods of a namespace that is taken back deleted", "pods", len(pods.Items), "gracePeriodSeconds", *grace)
	}
	return reconcile.Result{RequeueAfter: after}, errors.Join(errs...)
}
