// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
)

// Annotations by which Kubernetes speaks with provisioners.
const (
	annotationSelectedNode = "volume.kubernetes.io/selected-node"
	annotationProvisioner  = "volume.kubernetes.io/storage-provisioner"
)

// ClaimElsewhere says whether the volume of a claim may be at a provider. Claims for the generic
// ephemeral volumes of a pod are not: the pod brings its own along, which is made there from it.
func ClaimElsewhere(home *corev1.PersistentVolumeClaim) bool {
	owner := metav1.GetControllerOf(home)
	return home.Annotations[annotationProvisioner] == api.StorageProvisioner && (owner == nil || owner.Kind != "Pod")
}

// Claim pushes a claim for whose first pod the scheduler has chosen a virtual node of the provider.
// What was asked for is written once: of a volume nothing can be changed, and nothing is given up.
func Claim(home, remote *corev1.PersistentVolumeClaim, v View) *corev1.PersistentVolumeClaim {
	if remote != nil {
		out := remote.DeepCopy()
		out.ObjectMeta = v.metadata(home.ObjectMeta, out.ObjectMeta, home.Name)
		return out
	}
	if !v.ProviderNodes[home.Annotations[annotationSelectedNode]] || v.StorageClass == nil {
		return nil
	}
	out := &corev1.PersistentVolumeClaim{ObjectMeta: v.metadata(home.ObjectMeta, metav1.ObjectMeta{}, home.Name)}
	out.Spec = corev1.PersistentVolumeClaimSpec{
		AccessModes: home.Spec.AccessModes,
		VolumeMode:  home.Spec.VolumeMode,
		Resources:   corev1.VolumeResourceRequirements{Requests: home.Spec.Resources.Requests},
	}
	if modes := home.Annotations[api.AnnotationRemoteAccessModes]; modes != "" {
		out.Spec.AccessModes = nil
		for mode := range strings.SplitSeq(modes, ",") {
			out.Spec.AccessModes = append(out.Spec.AccessModes, corev1.PersistentVolumeAccessMode(strings.TrimSpace(mode)))
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
