// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/storage/plan"
)

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// growing expands the volumes of claims.
func growing(o Options) ctl.Registrar {
	return ctl.Controller[*corev1.PersistentVolumeClaim, plan.GrowInput]{
		Name: "growing-volume", Quiet: true, Only: plan.Grows, Deleting: true,
		Watches: []ctl.Watch{
			{Kind: &storagev1.StorageClass{}, Map: ctl.All(&corev1.PersistentVolumeClaimList{})},
			{Kind: &corev1.PersistentVolumeClaim{}, Map: o.growsWith},
			{Kind: &corev1.PersistentVolume{}, Map: o.growsWith},
		},
		Gather: o.gatherGrowing,
		Plan:   plan.Grow,
	}
}

// growsWith maps a claim, or the claim of a volume, to the claim whose volume grows with it: itself, or
// the one that it backs.
func (o Options) growsWith(ctx context.Context, r client.Reader, changed client.Object) []reconcile.Request {
	claim := client.ObjectKeyFromObject(changed)
	if volume, ok := changed.(*corev1.PersistentVolume); ok {
		ref := ptr.Deref(volume.Spec.ClaimRef, corev1.ObjectReference{})
		claim = types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
	}
	if claim.Namespace != o.Namespace {
		return []reconcile.Request{{NamespacedName: claim}}
	}
	backed := func(_ client.Object, root *corev1.PersistentVolumeClaim) bool {
		return string(root.UID) == claim.Name && plan.Grows(root)
	}
	return ctl.Where(&corev1.PersistentVolumeClaimList{}, backed)(ctx, r, changed)
}

func (o Options) gatherGrowing(ctx context.Context, r ctl.Reader,
	root *corev1.PersistentVolumeClaim) (plan.GrowInput, error) {
	in := plan.GrowInput{Root: root}
	var err error
	if in.Volume, err = ctl.Optional(ctx, r, types.NamespacedName{Name: root.Spec.VolumeName},
		&corev1.PersistentVolume{}); err != nil {
		return in, err
	}
	in.Backing, err = ctl.Optional(ctx, r, o.backing(root.UID), &corev1.PersistentVolumeClaim{})
	if err != nil || in.Backing == nil {
		return in, err
	}
	if name := in.Backing.Spec.StorageClassName; name != nil {
		if in.Class, err = ctl.Optional(ctx, r, types.NamespacedName{Name: *name},
			&storagev1.StorageClass{}); err != nil {
			return in, err
		}
	}
	in.Behind, err = ctl.Optional(ctx, r, types.NamespacedName{Name: in.Backing.Spec.VolumeName},
		&corev1.PersistentVolume{})
	return in, err
}
