// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete

// takenBack ends, as provider, the pods in a consumer's namespace that is being deleted, in bounded
// time. Otherwise their grace periods, which the consumer chooses, would decide how long the
// namespace stays.
func takenBack(now func() time.Time) ctl.Controller[*corev1.Namespace, plan.TakenBackInput] {
	return ctl.Controller[*corev1.Namespace, plan.TakenBackInput]{
		Name: "taken-back", Quiet: true, Deleting: true,
		Only: func(root *corev1.Namespace) bool { return root.DeletionTimestamp != nil && plan.MadeForConsumer(root) },
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.Namespace) (plan.TakenBackInput, error) {
			var pods corev1.PodList
			if err := r.List(ctx, &pods, client.InNamespace(root.Name),
				client.MatchingLabels{api.LabelManagedBy: api.ManagedByShadowPod}); err != nil {
				return plan.TakenBackInput{}, fmt.Errorf("list pods in %s: %w", root.Name, err)
			}
			return plan.TakenBackInput{Root: root, Pods: pods.Items, Now: now()}, nil
		},
		Plan: plan.TakenBack,
	}
}

// withdrawn deletes, as provider, the pod of a ShadowPod that was deleted. Kubernetes' garbage
// collector would, too, but by default it deletes only 20 objects per second of the whole cluster.
// It remains the one that finds pods whose ShadowPod was deleted while no controller ran.
func withdrawn() ctl.Registrar {
	return ctl.Controller[*corev1.Pod, plan.WithdrawnInput]{
		Name: "withdrawn-pods", Quiet: true, Workers: defaultWorkers,
		Only: func(root *corev1.Pod) bool { return plan.ShadowPodUID(root) != "" },
		Watches: []ctl.Watch{
			// A cache may show a pod before the ShadowPod that another replica made it for.
			{Kind: &corev1.Pod{}, Relevant: func(client.Object, client.Object) bool { return false }},
			{Kind: &offloadingv1beta1.ShadowPod{}, Map: ctl.SameName,
				Relevant: func(_, after client.Object) bool { return after == nil }},
		},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.Pod) (plan.WithdrawnInput, error) {
			shadow, err := ctl.Optional(ctx, r, client.ObjectKeyFromObject(root), &offloadingv1beta1.ShadowPod{})
			return plan.WithdrawnInput{Root: root, ShadowPod: shadow}, err
		},
		Plan: plan.Withdrawn,
	}
}
