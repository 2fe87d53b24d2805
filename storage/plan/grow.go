// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/desired"
)

// Grows reports whether a claim has a volume of Liqo, which may have to be expanded.
func Grows(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[AnnotationProvisioner] == api.StorageProvisioner &&
		claim.Status.Phase == corev1.ClaimBound && claim.Spec.VolumeName != ""
}

// GrowInput holds such a claim and its volume; nil if that was deleted.
type GrowInput struct {
	Root   *corev1.PersistentVolumeClaim
	Volume *corev1.PersistentVolume
	// Backing is the claim that backs the root, Class its class and Behind its volume. They are nil
	// for a volume at a provider, which reflection expands.
	Backing *corev1.PersistentVolumeClaim
	Class   *storagev1.StorageClass
	Behind  *corev1.PersistentVolume
}

// Grow plans the expansion of a volume: requests are passed on to the backing claim, and capacities
// are copied back. Nothing shrinks.
//
//	request of the claim ──▶ request of the backing claim ──▶ its own provisioner
//	capacity of claim and volume ◀── capacity of backing claim and volume
//
// If the file system must be expanded as well, the kubelet of the pod does so after the capacity of
// the volume has changed, and writes the capacity of the claim.
func Grow(in GrowInput) desired.Plan {
	var p desired.Plan
	switch {
	case in.Volume == nil:
		return p
	case in.Volume.Labels[api.LabelRemoteClusterID] != "":
		enlarge(&p, in.Volume, in.Root.Status.Capacity)
		return p
	case in.Backing == nil || in.Behind == nil:
		return p
	}
	wanted := in.Root.Spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case wanted.Cmp(*in.Backing.Spec.Resources.Requests.Storage()) <= 0:
	case in.Class == nil || !ptr.Deref(in.Class.AllowVolumeExpansion, false):
		p.Degraded = desired.Block("VolumeResizeFailed", "the volume is of class %s, which lets none grow; "+
			"set its allowVolumeExpansion if its provisioner can", *in.Backing.Spec.StorageClassName).Verdict
	default:
		larger := in.Backing.DeepCopy()
		larger.Spec.Resources.Requests[corev1.ResourceStorage] = wanted
		p.Actions = append(p.Actions, desired.Action{Verb: desired.Merge, Before: in.Backing, Object: larger})
	}
	enlarge(&p, in.Volume, in.Behind.Spec.Capacity)
	if has := in.Backing.Status.Capacity[corev1.ResourceStorage]; exceeds(has, in.Root.Status.Capacity) {
		larger := in.Root.DeepCopy()
		larger.Status.Capacity[corev1.ResourceStorage] = has
		p.Actions = append(p.Actions, desired.Action{Verb: desired.Merge, Before: in.Root, Object: larger,
			Subresource: "status", Last: true})
	}
	return p
}

// enlarge raises the capacity of a volume to the given one.
func enlarge(p *desired.Plan, volume *corev1.PersistentVolume, capacity corev1.ResourceList) {
	has := capacity[corev1.ResourceStorage]
	if !exceeds(has, volume.Spec.Capacity) {
		return
	}
	larger := volume.DeepCopy()
	larger.Spec.Capacity[corev1.ResourceStorage] = has
	p.Actions = append(p.Actions, desired.Action{Verb: desired.Merge, Before: volume, Object: larger})
}

// exceeds reports whether a quantity is greater than the storage of a known capacity.
func exceeds(has resource.Quantity, capacity corev1.ResourceList) bool {
	return capacity != nil && has.Cmp(*capacity.Storage()) > 0
}
