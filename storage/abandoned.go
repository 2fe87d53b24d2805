// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/storage/plan"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=offloading.liqo.io,resources=namespacemaps;virtualnodes,verbs=get;list;watch

// abandoned removes the finalizers from claims whose provider is not used any more. No virtual
// kubelet is left to do so.
func abandoned() ctl.Registrar {
	all := ctl.Where(&corev1.PersistentVolumeClaimList{},
		func(_ client.Object, root *corev1.PersistentVolumeClaim) bool { return plan.Held(root) })
	return ctl.Controller[*corev1.PersistentVolumeClaim, plan.AbandonedInput]{
		Name: "abandoned-claims", Quiet: true, Only: plan.Held, Deleting: true,
		Watches: []ctl.Watch{{Kind: &offloadingv1beta1.NamespaceMap{}, Map: all},
			{Kind: &offloadingv1beta1.VirtualNode{}, Map: all}},
		Gather: func(ctx context.Context, r ctl.Reader,
			root *corev1.PersistentVolumeClaim) (plan.AbandonedInput, error) {
			in, err := gatherAbandoned(ctx, r, root)
			if err != nil || len(in.Abandoned()) == 0 {
				return in, err
			}
			// A stale cache must not lead to the loss of a volume.
			return gatherAbandoned(ctx, r.Live, root)
		},
		Plan: plan.Abandoned,
	}
}

func gatherAbandoned(ctx context.Context, r client.Reader,
	root *corev1.PersistentVolumeClaim) (plan.AbandonedInput, error) {
	in := plan.AbandonedInput{Root: root}
	var maps offloadingv1beta1.NamespaceMapList
	if err := r.List(ctx, &maps); err != nil {
		return in, fmt.Errorf("list namespace maps: %w", err)
	}
	var nodes offloadingv1beta1.VirtualNodeList
	if err := r.List(ctx, &nodes); err != nil {
		return in, fmt.Errorf("list virtual nodes: %w", err)
	}
	in.Maps, in.Nodes = maps.Items, nodes.Items
	return in, nil
}
