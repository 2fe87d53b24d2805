// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// pendingPods are the controllers for pods that wait. Some were created before their namespace was
// offloaded as it is now; for others the provider has no room. The cache holds pods whole until
// they have started.
type pendingPods struct {
	runtimeClass string
	replacing    plan.Replacing
}

// Register adds the controllers and their index to mgr.
func (p pendingPods) Register(mgr manager.Manager) error {
	return errors.Join(pendingOn.Register(mgr), p.earlier().Register(mgr), p.unplaced().Register(mgr))
}

// pendingOn finds pods that have not started by the name of their node.
var pendingOn = ctl.Index{Kind: &corev1.Pod{}, Field: "pending-on", Of: func(obj client.Object) []string {
	if pod := obj.(*corev1.Pod); pod.Status.Phase == corev1.PodPending && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}
	}
	return nil
}}

// earlier updates or replaces pods that admission would now change in another way.
func (p pendingPods) earlier() ctl.Registrar {
	return ctl.Controller[*corev1.Pod, plan.EarlierPodInput]{
		Name: "earlier-pods", Quiet: true, Only: plan.Waits,
		Watches: []ctl.Watch{{Kind: &offloadingv1beta1.NamespaceOffloading{},
			Map: ctl.Where(&corev1.PodList{}, func(offloading client.Object, pod *corev1.Pod) bool {
				return pod.Namespace == offloading.GetNamespace() && plan.Waits(pod)
			})}},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.Pod) (plan.EarlierPodInput, error) {
			in := plan.EarlierPodInput{Root: root, RuntimeClass: p.runtimeClass, Replacing: p.replacing,
				Now: time.Now()}
			var err error
			if in.Offloading, err = offloadingOf(ctx, r, root.Namespace); err != nil || root.Spec.NodeName != "" {
				return in, err
			}
			in.ClaimsAllow, err = claimsAllowOffloading(ctx, r, root)
			return in, err
		},
		Plan: plan.EarlierPod,
	}
}

// unplaced taints virtual nodes whose provider has no room for pods, and has those pods recreated
// elsewhere.
func (p pendingPods) unplaced() ctl.Registrar {
	return ctl.Controller[*corev1.Node, plan.UnplacedInput]{
		Name: "unplaced-pods", Quiet: true, Only: isVirtual[*corev1.Node],
		Watches: []ctl.Watch{{Kind: &corev1.Pod{},
			Map: func(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
				pod := obj.(*corev1.Pod)
				if plan.NoRoom(pod) == "" {
					return nil
				}
				return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pod.Spec.NodeName}}}
			}}},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.Node) (plan.UnplacedInput, error) {
			var pods corev1.PodList
			on := client.MatchingFields{pendingOn.Field: root.Name}
			if err := r.List(ctx, &pods, on, client.UnsafeDisableDeepCopy); err != nil {
				return plan.UnplacedInput{}, fmt.Errorf("list pending pods: %w", err)
			}
			return plan.UnplacedInput{Root: root, Pods: pods.Items, Replacing: p.replacing, Now: time.Now()}, nil
		},
		Plan: plan.Unplaced,
	}
}
