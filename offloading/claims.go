// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch

// claimsAllowOffloading reports whether the claims of a pod do not tie it to this cluster. This
// holds if all are of Liqo's storage classes, whose volumes may be in any cluster. It also holds if
// the pod selects virtual nodes itself: then its user has provided for claims there.
func claimsAllowOffloading(ctx context.Context, r ctl.Reader, pod *corev1.Pod) (bool, error) {
	if ours, err := hasOnlyLiqoClaims(ctx, r, pod); ours || err != nil {
		return ours, err
	}
	var nodes corev1.NodeList
	if err := r.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list nodes: %w", err)
	}
	return plan.ChoosesVirtualNodes(&pod.Spec, nodes.Items), nil
}

// hasOnlyLiqoClaims reports whether all claims of a pod are of Liqo's storage classes. It reads
// claims from the API server, because a StatefulSet creates them just before their pod.
func hasOnlyLiqoClaims(ctx context.Context, r ctl.Reader, pod *corev1.Pod) (bool, error) {
	for _, v := range pod.Spec.Volumes {
		var class *string
		switch {
		case v.PersistentVolumeClaim != nil:
			key := types.NamespacedName{Namespace: pod.Namespace, Name: v.PersistentVolumeClaim.ClaimName}
			claim, err := ctl.Optional(ctx, r.Live, key, &corev1.PersistentVolumeClaim{})
			if claim == nil || err != nil {
				return false, err
			}
			class = claim.Spec.StorageClassName
		case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
			class = v.Ephemeral.VolumeClaimTemplate.Spec.StorageClassName
		default:
			continue
		}
		if ours, err := isLiqoClass(ctx, r, class); !ours || err != nil {
			return false, err
		}
	}
	return true, nil
}

// isLiqoClass reports whether Liqo provisions the volumes of a storage class.
func isLiqoClass(ctx context.Context, r ctl.Reader, class *string) (bool, error) {
	if class == nil {
		return false, nil
	}
	found, err := ctl.Optional(ctx, r, types.NamespacedName{Name: *class}, &storagev1.StorageClass{})
	return found != nil && found.Provisioner == api.StorageProvisioner, err
}
