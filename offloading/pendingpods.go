// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/internal/packed"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// pendingPods registers the controllers for pods that wait. Some were created before their
// namespace was offloaded as it is now; for others the provider has no room. An informer of their
// own holds only pods that have not started, which are few in any cluster.
type pendingPods struct{ runtimeClass string }

// Register adds the controllers and their informer to mgr.
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
	if err := mgr.Add(standby{pending}); err != nil {
		return fmt.Errorf("add informer of pending pods: %w", err)
	}
	return errors.Join(p.earlier(pending).Register(mgr), p.unplaced(pending).Register(mgr))
}

// standby starts a cache also in a replica that is not the leader. Controllers end the process if
// their cache does not sync in time, and the manager starts only its own cache before leader
// election.
type standby struct{ cache.Cache }

// NeedLeaderElection returns false: every replica needs the cache.
func (standby) NeedLeaderElection() bool { return false }

// earlier updates or replaces pods that admission would now change in another way.
func (p pendingPods) earlier(pending cache.Cache) ctl.Registrar {
	return ctl.Controller[*corev1.Pod, plan.EarlierPodInput]{
		Name: "earlier-pods", Quiet: true,
		Watches: []ctl.Watch{
			{Kind: &corev1.Pod{}, Cache: pending},
			{Kind: &offloadingv1beta1.NamespaceOffloading{}, Map: ctl.SameNamespace(&corev1.PodList{})},
		},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.Pod) (plan.EarlierPodInput, error) {
			in := plan.EarlierPodInput{Root: root, RuntimeClass: p.runtimeClass, Now: time.Now()}
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
func (p pendingPods) unplaced(pending cache.Cache) ctl.Registrar {
	return ctl.Controller[*corev1.Node, plan.UnplacedInput]{
		Name: "unplaced-pods", Quiet: true, Only: isVirtual[*corev1.Node],
		Watches: []ctl.Watch{{Kind: &corev1.Pod{}, Cache: pending,
			Map: func(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
				pod := obj.(*corev1.Pod)
				if plan.NoRoom(pod) == "" {
					return nil
				}
				return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: pod.Spec.NodeName}}}
			}}},
		Gather: func(ctx context.Context, _ ctl.Reader, root *corev1.Node) (plan.UnplacedInput, error) {
			var pods corev1.PodList
			if err := pending.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
				return plan.UnplacedInput{}, fmt.Errorf("list pending pods: %w", err)
			}
			return plan.UnplacedInput{Root: root, Pods: pods.Items, Now: time.Now()}, nil
		},
		Plan: plan.Unplaced,
	}
}
