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

// Removable says whether a volume is ours to remove: its claim is gone, and its policy says that
// nobody wants what is on it.
func Removable(volume *corev1.PersistentVolume) bool {
	return volume.Annotations[AnnotationProvisionedBy] == api.StorageProvisioner &&
		volume.Status.Phase == corev1.VolumeReleased &&
		volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete && volume.Spec.ClaimRef != nil
}

// ReleasedInput is a removable volume and the claim that backs it; nil when there is none (any more).
type ReleasedInput struct {
	Root    *corev1.PersistentVolume
	Backing *corev1.PersistentVolumeClaim
}

// Released plans the end of a volume: first what backs it, of which it is the only trace.
func Released(in ReleasedInput) desired.Plan {
	if in.Backing == nil {
		return desired.Plan{Actions: desired.Deletes(in.Root)}
	}
	p := desired.Wait("Deleting", "waiting for the end of claim %s/%s, which backs the volume", in.Backing.Namespace,
		in.Backing.Name)
	p.Actions = desired.Deletes(in.Backing)
	return p
}

// UnusedInput is a claim that backs another, which is nil when it is gone, and the volume that one was shown, nil
// when there is none (yet, or any more).
type UnusedInput struct {
	Root, Claim *corev1.PersistentVolumeClaim
	Volume      *corev1.PersistentVolume
}

// Unused plans the end of a claim that backs another which went before it got its volume: there is
// no data, and no volume whose end would take it along. Once there was such a volume, the claim is of use: who
// deletes a retained volume keeps the data.
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

// AbandonedInput is a claim with volumes at providers, and all maps and virtual nodes.
type AbandonedInput struct {
	Root  *corev1.PersistentVolumeClaim
	Maps  []offloadingv1beta1.NamespaceMap
	Nodes []offloadingv1beta1.VirtualNode
}

// Abandoned takes from a claim the finalizers that nobody else would take away.
func Abandoned(in AbandonedInput) desired.Plan {
	gone := in.Abandoned()
	released := in.Root.DeepCopy()
	released.Finalizers = slices.DeleteFunc(released.Finalizers,
		func(f string) bool { return slices.Contains(gone, f) })
	return desired.Plan{Actions: []desired.Action{{Verb: desired.Merge, Locked: true, Before: in.Root,
		Object: released}}}
}

// Abandoned are the finalizers of a claim whose provider holds nothing of it any more: its namespace
// is not, and not about to be, offloaded there. While there is a virtual node, a map that is missing comes back
// and says whether it is. The others are taken away by who gives the volume back; these would hold the claim
// for ever once Liqo is uninstalled.
func (in AbandonedInput) Abandoned() []string {
	var out []string
	for _, finalizer := range in.Root.Finalizers {
		provider := strings.TrimPrefix(finalizer, api.ClaimFinalizerPrefix)
		of := func(m offloadingv1beta1.NamespaceMap) bool {
			return m.Labels[api.LabelRemoteClusterID] == provider && m.Labels[api.LabelReplicated] != api.True
		}
		offloaded := slices.ContainsFunc(in.Maps, func(m offloadingv1beta1.NamespaceMap) bool {
			_, wished := m.Spec.DesiredMapping[in.Root.Namespace]
			_, current := m.Status.CurrentMapping[in.Root.Namespace]
			return of(m) && (wished || current)
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
