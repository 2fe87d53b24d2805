// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
)

// These are the annotations that Kubernetes sets for provisioners.
const (
	annotationSelectedNode = "volume.kubernetes.io/selected-node"
	annotationProvisioner  = "volume.kubernetes.io/storage-provisioner"
)

// ClaimElsewhere reports whether the volume of a claim may be at a provider.
func ClaimElsewhere(home *corev1.PersistentVolumeClaim) bool {
	return home.Annotations[annotationProvisioner] == api.StorageProvisioner
}

// OwnerPod returns the name of the pod whose generic ephemeral volume a claim may be, to be checked
// with OfEphemeralVolume; empty = it is not. A claim that has a volume at a provider is not, even
// if a pod owns it: a StatefulSet with persistentVolumeClaimRetentionPolicy makes the pod that it
// scales down the owner.
func OwnerPod(home *corev1.PersistentVolumeClaim) string {
	held := slices.ContainsFunc(home.Finalizers,
		func(f string) bool { return strings.HasPrefix(f, api.ClaimFinalizerPrefix) })
	if owner := metav1.GetControllerOf(home); owner != nil && owner.APIVersion == "v1" && owner.Kind == "Pod" && !held {
		return owner.Name
	}
	return ""
}

// OfEphemeralVolume reports whether a claim was made for a generic ephemeral volume of a pod. Such
// a claim is not reflected: the provider creates one from the remote pod.
func OfEphemeralVolume(home *corev1.PersistentVolumeClaim, pod *corev1.Pod) bool {
	return metav1.IsControlledBy(home, pod) && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Ephemeral != nil && pod.Name+"-"+v.Name == home.Name
	})
}

// Claim pushes a claim if the scheduler has chosen a virtual node of the provider for its first
// pod. The spec is written once, and the remote claim is never replaced: only the size of a volume
// can change. The remote claim of a former claim of that name is reused only if this one is placed
// at the provider, too. The consumer's claim is bound to a placeholder (storage/plan/claim.go:
// Claim), the remote one to a volume of the provider.
func Claim(home, remote *corev1.PersistentVolumeClaim, v View) *corev1.PersistentVolumeClaim {
	placed := v.ProviderNodes[home.Annotations[annotationSelectedNode]]
	if !placed && !slices.Contains(home.Finalizers, api.ClaimFinalizer(v.Provider)) {
		return nil
	}
	if remote != nil {
		out := remote.DeepCopy()
		out.ObjectMeta = v.metadata(home.ObjectMeta, out.ObjectMeta, home.Name)
		if size := home.Spec.Resources.Requests[corev1.ResourceStorage]; size.Cmp(
			*out.Spec.Resources.Requests.Storage()) > 0 {
			out.Spec.Resources.Requests[corev1.ResourceStorage] = size
		}
		return out
	}
	if !placed || v.StorageClass == nil {
		return nil
	}
	out := &corev1.PersistentVolumeClaim{ObjectMeta: v.metadata(home.ObjectMeta, metav1.ObjectMeta{}, home.Name)}
	out.Spec = corev1.PersistentVolumeClaimSpec{
		AccessModes: home.Spec.AccessModes,
		VolumeMode:  home.Spec.VolumeMode,
		Resources:   *home.Spec.Resources.DeepCopy(),
	}
	if modes := home.Annotations[api.AnnotationRemoteAccessModes]; modes != "" {
		out.Spec.AccessModes = nil
		for mode := range strings.SplitSeq(modes, ",") {
			out.Spec.AccessModes = append(out.Spec.AccessModes,
				corev1.PersistentVolumeAccessMode(strings.TrimSpace(mode)))
		}
	}
	switch class := home.Annotations[api.AnnotationRemoteStorageClass]; {
	case class != "":
		out.Spec.StorageClassName = new(class)
	case *v.StorageClass != "":
		out.Spec.StorageClassName = new(*v.StorageClass)
	}
	return out
}

// ClaimStatus pulls the size of the volume at the provider, and whether it is being resized. A
// claim whose volume is elsewhere, or is not bound yet, is not changed.
func ClaimStatus(home, remote *corev1.PersistentVolumeClaim, v View) *corev1.PersistentVolumeClaim {
	bound := home.Status.Phase == corev1.ClaimBound && remote != nil && remote.Status.Phase == corev1.ClaimBound
	if !bound || !slices.Contains(home.Finalizers, api.ClaimFinalizer(v.Provider)) {
		return nil
	}
	out := home.DeepCopy()
	out.Status.Conditions = slices.DeleteFunc(out.Status.Conditions, ofGrowth)
	for _, c := range remote.Status.Conditions {
		same := func(other corev1.PersistentVolumeClaimCondition) bool { return other.Type == c.Type }
		if ofGrowth(c) && !slices.ContainsFunc(out.Status.Conditions, same) {
			c.Reason, c.Message = cut(c.Reason), cut(c.Message)
			c.Status = corev1.ConditionStatus(cut(string(c.Status))) // API servers take any for a claim
			out.Status.Conditions = append(out.Status.Conditions, c)
		}
	}
	has := remote.Status.Capacity[corev1.ResourceStorage]
	if !isHuge(has) && has.Cmp(*home.Status.Capacity.Storage()) > 0 {
		out.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: has}
	}
	return out
}

// ofGrowth reports whether a condition is about resizing a volume, which only the cluster with the
// volume knows. Controllers of the claim's own cluster set all other conditions.
func ofGrowth(c corev1.PersistentVolumeClaimCondition) bool {
	switch c.Type {
	case corev1.PersistentVolumeClaimResizing, corev1.PersistentVolumeClaimFileSystemResizePending,
		corev1.PersistentVolumeClaimControllerResizeError, corev1.PersistentVolumeClaimNodeResizeError:
		return true
	}
	return false
}
