// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/liqo-go/liqo/api"
)

// Grows says whether a claim has a volume of ours, which may have to grow.
func Grows(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[AnnotationProvisioner] == api.StorageProvisioner && claim.Status.Phase == corev1.ClaimBound && claim.Spec.VolumeName != ""
}

// GrowInput is such a claim with its volume; nil when that is gone.
type GrowInput struct {
	Root   *corev1.PersistentVolumeClaim
	Volume *corev1.PersistentVolume
	// Backing is the claim that backs the root, Class its class and Behind its volume; nil for a volume
	// at a provider, where the claim of that name is made to grow by reflection.
	Backing *corev1.PersistentVolumeClaim
	Class   *storagev1.StorageClass
	Behind  *corev1.PersistentVolume
}

// Growth is what the objects of a claim should be; nil for those that are as they should be.
type Growth struct {
	Backing *corev1.PersistentVolumeClaim
	Volume  *corev1.PersistentVolume
	// Status is the root with the status it should have.
	Status *corev1.PersistentVolumeClaim
	// Refusal says why the volume does not grow, and what to do; empty if it does.
	Refusal string
}

// Grow plans what follows from a larger request, and from a volume that has grown. Nothing shrinks.
//
//	request of the claim ──▶ request of what backs it ──▶ its own provisioner
//	capacity of claim and volume ◀── capacity of what backs them
//
// Where the file system has to grow too, the kubelet of the pod does that and writes the capacity of
// the claim, once the volume shows its own.
func Grow(in GrowInput) Growth {
	var out Growth
	switch {
	case in.Volume == nil:
		return out
	case in.Volume.Labels[api.LabelRemoteClusterID] != "":
		out.Volume = larger(in.Volume, in.Root.Status.Capacity)
		return out
	case in.Backing == nil || in.Behind == nil:
		return out
	}
	wanted := in.Root.Spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case wanted.Cmp(*in.Backing.Spec.Resources.Requests.Storage()) <= 0:
	case in.Class == nil || in.Class.AllowVolumeExpansion == nil || !*in.Class.AllowVolumeExpansion:
		out.Refusal = fmt.Sprintf("the volume is of class %s, which lets none grow; set its allowVolumeExpansion if its provisioner can", *in.Backing.Spec.StorageClassName)
	default:
		out.Backing = in.Backing.DeepCopy()
		out.Backing.Spec.Resources.Requests[corev1.ResourceStorage] = wanted
	}
	out.Volume = larger(in.Volume, in.Behind.Spec.Capacity)
	if has := in.Backing.Status.Capacity[corev1.ResourceStorage]; exceeds(has, in.Root.Status.Capacity) {
		out.Status = in.Root.DeepCopy()
		out.Status.Status.Capacity[corev1.ResourceStorage] = has
	}
	return out
}

// larger is the volume with a larger capacity; nil if it is not larger.
func larger(volume *corev1.PersistentVolume, capacity corev1.ResourceList) *corev1.PersistentVolume {
	has := capacity[corev1.ResourceStorage]
	if !exceeds(has, volume.Spec.Capacity) {
		return nil
	}
	out := volume.DeepCopy()
	out.Spec.Capacity[corev1.ResourceStorage] = has
	return out
}

func exceeds(has resource.Quantity, capacity corev1.ResourceList) bool {
	return capacity != nil && has.Cmp(*capacity.Storage()) > 0
}
