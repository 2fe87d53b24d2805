// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// Removable reports whether a volume is Liqo's to delete: its claim was deleted, and its reclaim
// policy is Delete.
func Removable(volume *corev1.PersistentVolume) bool {
	return volume.Annotations[AnnotationProvisionedBy] == api.StorageProvisioner &&
		volume.Status.Phase == corev1.VolumeReleased &&
		volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete && volume.Spec.ClaimRef != nil
}

// ReleasedInput holds a removable volume and the backing claim; nil if there is none.
type ReleasedInput struct {
	Root    *corev1.PersistentVolume
	Backing *corev1.PersistentVolumeClaim
}

// Released deletes a volume. The backing claim is deleted first, because only the volume refers to
// it.
func Released(in ReleasedInput) desired.Plan {
	if in.Backing == nil {
		return desired.Plan{Actions: desired.Deletes(in.Root)}
	}
	p := desired.Wait("Deleting", "waiting for the end of claim %s/%s, which backs the volume", in.Backing.Namespace,
		in.Backing.Name)
	p.Actions = desired.Deletes(in.Backing)
	return p
}

// UnusedInput holds a backing claim as root.
type UnusedInput struct {
	// Claim is the claim that the root backs; nil if it was deleted.
	Root, Claim *corev1.PersistentVolumeClaim
	// Volume is the volume that Liqo created for that claim; nil if there is none.
	Volume *corev1.PersistentVolume
}

// Unused deletes a backing claim whose claim was deleted before it had a volume. Then there is no
// data, and no volume with which it would be deleted. After there was a volume, the backing claim
// stays: who deletes a retained volume keeps the data.
func Unused(in UnusedInput) desired.Plan {
	unused := in.Root.Annotations[annotationUnused] == api.True
	switch {
	case in.Volume != nil && unused:
		used := in.Root.DeepCopy()
		delete(used.Annotations, annotationUnused)
		return desired.Plan{Fill: used}
	case in.Volume == nil && in.Claim == nil && (unused || in.Root.Spec.VolumeName == ""):
		return desired.Plan{Actions: desired.Deletes(in.Root)}
	}
	return desired.Plan{}
}

// Held reports whether a claim has a volume at a provider.
func Held(claim *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(claim.Finalizers, ofProvider)
}

func ofProvider(finalizer string) bool { return strings.HasPrefix(finalizer, api.ClaimFinalizerPrefix) }

// AbandonedInput holds a claim with volumes at providers, and all NamespaceMaps and virtual nodes.
type AbandonedInput struct {
	Root  *corev1.PersistentVolumeClaim
	Maps  []offloadingv1beta1.NamespaceMap
	Nodes []offloadingv1beta1.VirtualNode
}

// Abandoned removes those finalizers from a claim that nobody else would remove.
func Abandoned(in AbandonedInput) desired.Plan {
	gone := in.Abandoned()
	released := in.Root.DeepCopy()
	released.Finalizers = slices.DeleteFunc(released.Finalizers,
		func(f string) bool { return slices.Contains(gone, f) })
	return desired.Plan{Actions: []desired.Action{{Verb: desired.Merge, Locked: true, Before: in.Root,
		Object: released}}}
}

// Abandoned returns the finalizers of a claim for providers that its namespace is not offloaded to,
// and not about to be. While a provider has a virtual node, a missing map is created again, so the
// result is not known yet. Virtual kubelets remove the other finalizers. These would hold the claim
// for ever once Liqo is uninstalled.
func (in AbandonedInput) Abandoned() []string {
	var out []string
	for _, finalizer := range in.Root.Finalizers {
		provider := strings.TrimPrefix(finalizer, api.ClaimFinalizerPrefix)
		of := func(m offloadingv1beta1.NamespaceMap) bool {
			return m.Labels[api.LabelRemoteClusterID] == provider && m.Labels[api.LabelReplicated] != api.True
		}
		offloaded := slices.ContainsFunc(in.Maps, func(m offloadingv1beta1.NamespaceMap) bool {
			_, requested := m.Spec.DesiredMapping[in.Root.Namespace]
			_, current := m.Status.CurrentMapping[in.Root.Namespace]
			return of(m) && (requested || current)
		})
		missing := !slices.ContainsFunc(in.Maps, of) &&
			slices.ContainsFunc(in.Nodes, func(n offloadingv1beta1.VirtualNode) bool {
				return n.Spec.ClusterID == provider
			})
		if ofProvider(finalizer) && !offloaded && !missing {
			out = append(out, finalizer)
		}
	}
	return out
}
