// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/liqo-go/liqo/internal/ctl"
	"github.com/liqo-go/liqo/storage/plan"
)

// claim creates the volumes of claims. A claim that has a volume is not changed any more.
func claim(o Options) ctl.Controller[*corev1.PersistentVolumeClaim, plan.ClaimInput] {
	return ctl.Controller[*corev1.PersistentVolumeClaim, plan.ClaimInput]{
		Name:    "claim",
		Owns:    []client.Object{&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}},
		Creates: []client.Object{&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}},
		Only:    plan.Provisioning,
		Watches: []ctl.Watch{{Kind: &storagev1.StorageClass{}, Map: ctl.All(&corev1.PersistentVolumeClaimList{})}},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.PersistentVolumeClaim) (plan.ClaimInput, error) {
			return gatherClaim(ctx, r, root, o)
		},
		Plan: plan.Claim,
	}
}

// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,namespace=liqo-storage,verbs=create;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=storage.k8s.io,resources=storageclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch

func gatherClaim(ctx context.Context, r ctl.Reader, root *corev1.PersistentVolumeClaim,
	o Options) (plan.ClaimInput, error) {
	in := plan.ClaimInput{Root: root, RealClass: o.RealClass, Namespace: o.Namespace}
	var classes storagev1.StorageClassList
	if err := r.List(ctx, &classes); err != nil {
		return in, fmt.Errorf("list storage classes: %w", err)
	}
	in.Classes = classes.Items
	for i := range classes.Items {
		if name := root.Spec.StorageClassName; name != nil && classes.Items[i].Name == *name {
			in.Class = &classes.Items[i]
		}
	}
	var err error
	if in.Node, err = ctl.Optional(ctx, r, types.NamespacedName{Name: root.Annotations[plan.AnnotationSelectedNode]},
		&corev1.Node{}); err != nil {
		return in, err
	}
	in.Backing, err = ctl.Optional(ctx, r, o.backing(root.UID), &corev1.PersistentVolumeClaim{})
	if err != nil || in.Backing == nil || in.Backing.Status.Phase != corev1.ClaimBound {
		return in, err
	}
	// The cache may show the bound claim before its volume, whose event is not mapped to the root.
	in.Volume, err = ctl.Optional(ctx, r.Live, types.NamespacedName{Name: in.Backing.Spec.VolumeName},
		&corev1.PersistentVolume{})
	return in, err
}

// unused deletes backing claims whose claim was deleted before it had a volume.
func unused(o Options) ctl.Controller[*corev1.PersistentVolumeClaim, plan.UnusedInput] {
	return ctl.Controller[*corev1.PersistentVolumeClaim, plan.UnusedInput]{
		Name: "unused-claim",
		Only: func(root *corev1.PersistentVolumeClaim) bool {
			return root.Namespace == o.Namespace && plan.BackedBy(root).Name != ""
		},
		Quiet: true,
		Watches: []ctl.Watch{
			{Kind: &corev1.PersistentVolumeClaim{}, Map: o.backingOfClaim},
			{Kind: &corev1.PersistentVolume{}, Map: o.backingOfVolume},
		},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.PersistentVolumeClaim) (plan.UnusedInput, error) {
			claim, err := ctl.Optional(ctx, r.Live, plan.BackedBy(root), &corev1.PersistentVolumeClaim{})
			if claim != nil && string(claim.UID) != root.Name {
				claim = nil // a new claim of that name
			}
			if err != nil {
				return plan.UnusedInput{}, err
			}
			volume, err := ctl.Optional(ctx, r.Live, types.NamespacedName{Name: plan.VolumeName(types.UID(root.Name))},
				&corev1.PersistentVolume{})
			return plan.UnusedInput{Root: root, Claim: claim, Volume: volume}, err
		},
		Plan: plan.Unused,
	}
}

// backing returns the name of the backing claim of a claim.
func (o Options) backing(claim types.UID) types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: string(claim)}
}

// backingOfClaim maps a claim to its backing claim.
func (o Options) backingOfClaim(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: o.backing(obj.GetUID())}}
}

// backingOfVolume maps a volume that Liqo has created for a claim to the backing claim.
func (o Options) backingOfVolume(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
	ref := obj.(*corev1.PersistentVolume).Spec.ClaimRef
	if ref == nil || obj.GetName() != plan.VolumeName(ref.UID) {
		return nil
	}
	return []reconcile.Request{{NamespacedName: o.backing(ref.UID)}}
}

// released deletes the volumes of deleted claims.
func released(o Options) ctl.Controller[*corev1.PersistentVolume, plan.ReleasedInput] {
	return ctl.Controller[*corev1.PersistentVolume, plan.ReleasedInput]{
		Name:    "released-volume",
		Only:    plan.Removable,
		Quiet:   true,
		Watches: []ctl.Watch{{Kind: &corev1.PersistentVolumeClaim{}, Map: o.backed}},
		Gather: func(ctx context.Context, r ctl.Reader, root *corev1.PersistentVolume) (plan.ReleasedInput, error) {
			key := o.backing(root.Spec.ClaimRef.UID)
			// A stale cache may lack the backing claim.
			backing, err := ctl.Optional(ctx, r.Live, key, &corev1.PersistentVolumeClaim{})
			return plan.ReleasedInput{Root: root, Backing: backing}, err
		},
		Plan: plan.Released,
	}
}

// backed maps a backing claim to the volume of the claim that it backs.
func (o Options) backed(_ context.Context, _ client.Reader, obj client.Object) []reconcile.Request {
	if obj.GetNamespace() != o.Namespace {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: plan.VolumeName(types.UID(obj.GetName()))}}}
}
