// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/desired"
)

// Annotations by which Kubernetes speaks with provisioners.
const (
	// AnnotationSelectedNode on a claim is the node the scheduler has chosen for its first pod.
	AnnotationSelectedNode = "volume.kubernetes.io/selected-node"
	// AnnotationProvisioner on a claim names who is to make its volume; it comes when binding
	// is no longer delayed.
	AnnotationProvisioner = "volume.kubernetes.io/storage-provisioner"
	// AnnotationProvisionedBy on a volume names who has made it and will remove it.
	AnnotationProvisionedBy = "pv.kubernetes.io/provisioned-by"
	// annotationUnused ("true") is on a claim that backs another until that one has been shown a volume: so
	// long there is no data.
	annotationUnused       = "storage.liqo.io/unused"
	annotationDefaultClass = "storageclass.kubernetes.io/is-default-class"
)

// placeholder is the path of a volume that is at a provider. Nothing is ever mounted from it: the
// only nodes the volume fits are virtual.
const placeholder = "/var/lib/liqo/volume-of-another-cluster"

// ClaimInput is a claim for which the scheduler has chosen a node.
type ClaimInput struct {
	Root *corev1.PersistentVolumeClaim
	// Class is the claim's; nil when it is gone.
	Class *storagev1.StorageClass
	// Node is the chosen one; nil when it is gone.
	Node *corev1.Node
	// Classes are all of the cluster. RealClass is the one that backs claims; empty = the default.
	Classes   []storagev1.StorageClass
	RealClass string
	// Namespace is where claims lie that back others.
	Namespace string
	// Backing is the claim that backs the root, Volume the one bound to it; nil before they exist.
	Backing *corev1.PersistentVolumeClaim
	Volume  *corev1.PersistentVolume
}

// Provisioning says whether a claim waits for a volume from us.
func Provisioning(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[AnnotationProvisioner] == api.StorageProvisioner &&
		claim.Annotations[AnnotationSelectedNode] != "" && claim.Spec.VolumeName == ""
}

// VolumeName names the volume of a claim.
func VolumeName(claim types.UID) string { return "pvc-" + string(claim) }

// Claim plans the volume of a claim once its first pod has a node.
//
//	node       the volume                                        fits
//	real       that of a claim of a real class, shown once more  where that one does, on real nodes
//	full       none; the scheduler chooses again, and the claim behind it begins again
//	virtual    a placeholder; the claim is made at the provider  every virtual node of the provider
//	neither    none; the scheduler chooses again
//
// A claim that has its volume is not planned any more: later pods follow the volume. The claim at the provider is
// written in reflection/translate/claim.go: Claim.
func Claim(in ClaimInput) desired.Plan {
	switch {
	case in.Class == nil:
		return desired.Block("StorageClassMissing",
			"the storage class of the claim does not exist; create it, or the claim anew")
	case in.Root.Spec.DataSource != nil || in.Root.Spec.DataSourceRef != nil:
		return desired.Block("DataSourceUnsupported",
			"class %s makes empty volumes only; create the claim without a data source", in.Class.Name)
	case in.Node == nil:
		return chooseAnew(in, "NodeGone", "the node that was chosen is gone")
	case in.Node.Labels[api.LabelType] != api.TypeVirtualNode:
		return real(in)
	case in.Node.Labels[api.LabelStorageAvailable] != api.True:
		return chooseAnew(in, "StorageNotOffered",
			"the provider behind the chosen node offers no storage; let the pod run elsewhere")
	}
	volume := in.shown(corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{
			corev1.ResourceStorage: in.Root.Spec.Resources.Requests[corev1.ResourceStorage]},
		AccessModes: in.Root.Spec.AccessModes,
		VolumeMode:  in.Root.Spec.VolumeMode,
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: placeholder}},
		NodeAffinity: on(nil, require(api.LabelRemoteClusterID, corev1.NodeSelectorOpIn,
			in.Node.Labels[api.LabelRemoteClusterID])),
	})
	volume.Labels = map[string]string{api.LabelRemoteClusterID: in.Node.Labels[api.LabelRemoteClusterID]}
	return desired.Plan{Objects: []desired.Object{volume}}
}

// chooseAnew takes the choice of the node back, which makes the scheduler look again.
func chooseAnew(in ClaimInput, reason, message string) desired.Plan {
	p := desired.Block(reason, "%s", message)
	filled := in.Root.DeepCopy()
	delete(filled.Annotations, AnnotationSelectedNode)
	p.Fill = filled
	return p
}

// BackedBy names the claim that another one backs. A name that is too long for a label is in an
// annotation; of a claim that former versions made there is neither, and the name is empty.
func BackedBy(backing desired.Object) types.NamespacedName {
	labels, key := backing.GetLabels(), api.LabelVirtualPVCName
	return types.NamespacedName{
		Namespace: labels[api.LabelVirtualPVCNamespace], Name: cmp.Or(backing.GetAnnotations()[key], labels[key]),
	}
}

// real plans a volume on the nodes of this cluster.
func real(in ClaimInput) desired.Plan {
	class := in.realClass()
	if class == "" {
		return desired.Block("RealStorageClassMissing",
			"no storage class of this cluster can back the claim; mark one as default, or set the chart's value "+
				"storage.realStorageClassName to one that exists")
	}
	backing := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: string(in.Root.UID), Namespace: in.Namespace,
			Annotations: map[string]string{AnnotationSelectedNode: in.Node.Name},
			Labels: map[string]string{
				api.LabelVirtualPVCNamespace: in.Root.Namespace, api.LabelVirtualPVCName: api.LabelValue(in.Root.Name),
			},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: in.Root.Spec.AccessModes, VolumeMode: in.Root.Spec.VolumeMode,
			Resources: in.Root.Spec.Resources, StorageClassName: new(class),
		},
	}
	if in.Backing == nil {
		backing.Annotations[annotationUnused] = api.True
	} else if value, ok := in.Backing.Annotations[annotationUnused]; ok {
		backing.Annotations[annotationUnused] = value
	}
	if backing.Labels[api.LabelVirtualPVCName] != in.Root.Name {
		backing.Annotations[api.LabelVirtualPVCName] = in.Root.Name
	}
	if in.rejected() {
		p := chooseAnew(in, "NodeRejected",
			"the provisioner cannot make the volume on the node; free storage there, or let the pod run elsewhere")
		p.Actions = desired.Deletes(in.Backing)
		return p
	}
	if in.Volume == nil {
		p := desired.Wait("VolumePending", "waiting for a volume of class %s; see why in the events of claim %s/%s",
			class, in.Namespace, backing.Name)
		p.Objects = []desired.Object{backing}
		return p
	}
	spec := *in.Volume.Spec.DeepCopy()
	spec.NodeAffinity = on(spec.NodeAffinity, require(api.LabelType, corev1.NodeSelectorOpNotIn, api.TypeVirtualNode))
	return desired.Plan{Objects: []desired.Object{backing, in.shown(spec)}}
}

// rejected reports whether the provisioner of the real class has removed the node from the claim
// that backs the root. It does so if the node has no room, for the scheduler to choose another one;
// but no pod uses that claim.
func (in ClaimInput) rejected() bool {
	return in.Backing != nil && in.Backing.Spec.VolumeName == "" && in.Backing.DeletionTimestamp == nil &&
		in.Backing.Annotations[AnnotationSelectedNode] == ""
}

// realClass is the class that backs the claim; empty when there is none. The one chosen first stays.
func (in ClaimInput) realClass() string {
	if in.Backing != nil && in.Backing.Spec.StorageClassName != nil {
		return *in.Backing.Spec.StorageClassName
	}
	candidates := slices.DeleteFunc(slices.Clone(in.Classes), func(c storagev1.StorageClass) bool {
		if in.RealClass != "" && c.Name != in.RealClass || in.RealClass == "" &&
			c.Annotations[annotationDefaultClass] != api.True {
			return true
		}
		return c.Provisioner == api.StorageProvisioner
	})
	if len(candidates) == 0 {
		return ""
	}
	// Of several defaults Kubernetes takes the newest, then the first by name.
	return slices.MinFunc(candidates, func(a, b storagev1.StorageClass) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	}).Name
}

// shown is the volume of the root.
func (in ClaimInput) shown(spec corev1.PersistentVolumeSpec) *corev1.PersistentVolume {
	spec.StorageClassName = in.Class.Name
	spec.VolumeAttributesClassName = nil
	spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	if in.Class.ReclaimPolicy != nil {
		spec.PersistentVolumeReclaimPolicy = *in.Class.ReclaimPolicy
	}
	spec.ClaimRef = &corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: in.Root.Namespace, Name: in.Root.Name,
		UID: in.Root.UID,
	}
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: VolumeName(in.Root.UID),
			Annotations: map[string]string{AnnotationProvisionedBy: api.StorageProvisioner}},
		Spec: spec,
	}
}

// on adds a requirement to every alternative of an affinity.
func on(affinity *corev1.VolumeNodeAffinity, also corev1.NodeSelectorRequirement) *corev1.VolumeNodeAffinity {
	terms := []corev1.NodeSelectorTerm{{}}
	if affinity != nil && affinity.Required != nil {
		terms = slices.Clone(affinity.Required.NodeSelectorTerms)
	}
	for i := range terms {
		terms[i].MatchExpressions = append(slices.Clone(terms[i].MatchExpressions), also)
	}
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: terms}}
}

func require(key string, operator corev1.NodeSelectorOperator, value string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: operator, Values: []string{value}}
}
