// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch

// lostProviders labels, as consumer, the pods of a virtual node whose provider is unavailable.
func lostProviders() ctl.Registrar {
	return ctl.Controller[*corev1.Node, plan.LostProviderInput]{
		Name: "lost-providers", Quiet: true, Only: isVirtual[*corev1.Node],
		Watches: []ctl.Watch{{Kind: &corev1.Node{}, Relevant: ctl.Differs(plan.ReadyChanges)}},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.Node) (plan.LostProviderInput, error) {
			in := plan.LostProviderInput{Root: root}
			var pods metav1.PartialObjectMetadataList
			pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
			// The cache does not hold this label of users' pods. Readiness of virtual nodes changes
			// rarely.
			if err := r.Live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": root.Name},
				client.HasLabels{api.LabelShadowPod}); err != nil {
				return in, fmt.Errorf("list pods of node %s: %w", root.Name, err)
			}
			for i := range pods.Items {
				pods.Items[i].SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
			}
			in.Pods = pods.Items
			return in, nil
		},
		Plan: plan.LostProvider,
	}
}

// isVirtual reports whether a Node stands for a provider.
func isVirtual[T client.Object](node T) bool {
	return node.GetLabels()[api.LabelType] == api.TypeVirtualNode
}

// lostPods force-deletes, as provider, pods of consumers that terminate on a node that is not
// ready. While they exist, nothing replaces them.
func lostPods() ctl.Registrar {
	return ctl.Controller[*corev1.Pod, plan.LostPodInput]{
		Name: "lost-pods", Quiet: true, Only: plan.Ending, Deleting: true,
		Watches: []ctl.Watch{{Kind: &corev1.Node{}, Relevant: ctl.Differs(plan.ReadyChanges),
			Map: ctl.Where(&corev1.PodList{},
				func(node client.Object, root *corev1.Pod) bool {
					return root.Spec.NodeName == node.GetName() && plan.Ending(root)
				})}},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.Pod) (plan.LostPodInput, error) {
			node, err := ctl.Optional(ctx, r, types.NamespacedName{Name: root.Spec.NodeName}, &corev1.Node{})
			return plan.LostPodInput{Root: root, Node: node}, err
		},
		Plan: plan.LostPod,
	}
}
