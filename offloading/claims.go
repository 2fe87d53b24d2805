// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/offloading/plan"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch

func readerOf(mgr manager.Manager) ctl.Reader {
	return ctl.Reader{Reader: mgr.GetClient(), Live: mgr.GetAPIReader()}
}

// travels reports whether all claims of a pod are of classes of ours, whose volumes can be in other
// clusters. Claims are read from the API server: a StatefulSet makes them just before their pod.
func travels(ctx context.Context, r ctl.Reader, pod *corev1.Pod) (bool, error) {
	if !plan.Claims(&pod.Spec) {
		return true, nil
	}
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
		if ours, err := virtual(ctx, r, class); !ours || err != nil {
			return false, err
		}
	}
	return true, nil
}

// virtual reports whether a class is one of ours.
func virtual(ctx context.Context, r ctl.Reader, class *string) (bool, error) {
	if class == nil {
		return false, nil
	}
	found, err := ctl.Optional(ctx, r, types.NamespacedName{Name: *class}, &storagev1.StorageClass{})
	return found != nil && found.Provisioner == api.StorageProvisioner, err
}
