// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create

// drain evicts the pods of virtual nodes that are to have no Node any more. The controller of the
// virtual node waits until all are gone, and decides what happens if they stay.
func drain() ctl.Registrar {
	return ctl.Controller[*offloadingv1beta1.VirtualNode, []corev1.Pod]{
		Name: "drain", Quiet: true, Deleting: true,
		Only:   func(root *offloadingv1beta1.VirtualNode) bool { return !plan.HasNode(root) },
		Gather: gatherDrained,
		Plan:   plan.Drain,
	}
}

// gatherDrained lists the pods of a virtual node that is drained; none if the Node of its name is
// not its own.
func gatherDrained(ctx context.Context, r ctl.Reader, root *offloadingv1beta1.VirtualNode) ([]corev1.Pod, error) {
	if owned, err := ownsNode(ctx, r, root); err != nil || !owned {
		return nil, err
	}
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.MatchingFields{"spec.nodeName": root.Name}); err != nil {
		return nil, fmt.Errorf("list pods of node %s: %w", root.Name, err)
	}
	return pods.Items, nil
}

// ownsNode reports whether the Node of a virtual node's name belongs to it, and not to a real node
// or to an older virtual node of that name.
func ownsNode(ctx context.Context, r client.Reader, vn *offloadingv1beta1.VirtualNode) (bool, error) {
	node, err := ctl.Optional(ctx, r, types.NamespacedName{Name: vn.Name}, &corev1.Node{})
	if err != nil || node == nil || !isVirtual(node) {
		return false, err
	}
	first, err := firstNamed(ctx, r, vn.Name)
	return first != nil && first.UID == vn.UID, err
}
