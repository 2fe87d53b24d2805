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
	"k8s.io/utils/ptr"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/desired"
)

// Annotations of Kubernetes' protocol with provisioners.
const (
	// AnnotationSelectedNode of a claim is the node that the scheduler has chosen for its first
	// pod.
	AnnotationSelectedNode = "volume.kubernetes.io/selected-node"
	// AnnotationProvisioner of a claim names the provisioner that is to create its volume. It is
	// set when binding is no longer delayed.
	AnnotationProvisioner = "volume.kubernetes.io/storage-provisioner"
	// AnnotationProvisionedBy of a volume names the provisioner that has created it and will delete
	// it.
	AnnotationProvisionedBy = "pv.kubernetes.io/provisioned-by"
	// annotationUnused ("true") marks a backing claim until the claim that it backs has a volume.
	// Until then there is no data.
	annotationUnused       = "storage.liqo.io/unused"
	annotationDefaultClass = "storageclass.kubernetes.io/is-default-class"
)

// placeholder is the path in the local object of a volume at a provider. It is never mounted,
// because the volume fits virtual nodes only.
const placeholder = "/var/lib/liqo/volume-of-another-cluster"

// ClaimInput holds a claim for which the scheduler has chosen a node.
type ClaimInput struct {
	Root *corev1.PersistentVolumeClaim
	// Class is the storage class of the claim; nil if it was deleted.
	Class *storagev1.StorageClass
	// Node is the chosen node; nil if it was deleted.
	Node *corev1.Node
	// Classes are all of the cluster. RealClass is the class of backing claims; empty = the
	// default.
	Classes   []storagev1.StorageClass
	RealClass string
	// Namespace is the namespace of backing claims.
	Namespace string
	// Backing is the claim that backs the root, and Volume its volume; nil before they exist.
	Backing *corev1.PersistentVolumeClaim
	Volume  *corev1.PersistentVolume
}

// Provisioning reports whether a claim waits for a volume from Liqo.
func Provisioning(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Annotations[AnnotationProvisioner] == api.StorageProvisioner &&
		claim.Annotations[AnnotationSelectedNode] != "" && claim.Spec.VolumeName == ""
}

// VolumeName returns the name of the volume of a claim.
func VolumeName(claim types.UID) string { return "pvc-" + string(claim) }

// Claim plans the volume of a claim once its first pod has a node.
//
//	node       volume                                             node affinity
//	real       a copy of the backing claim's volume               that of the copied volume, on real nodes
//	full       none; the scheduler chooses again, and the backing claim is created again
//	virtual    a placeholder; the provider has the real claim     all virtual nodes of the provider
//	neither    none; the scheduler chooses again
//
// A claim that has a volume is not planned any more: later pods follow the volume. The claim at the
// provider is written in reflection/translate/claim.go: Claim.
func Claim(in ClaimInput) desired.Plan {
	switch {
	case in.Class == nil:
		return desired.Block("StorageClassMissing",
			"the storage class of the claim does not exist; create it, or the claim anew")
	case in.Root.Spec.DataSource != nil || in.Root.Spec.DataSourceRef != nil:
		return desired.Block("DataSourceUnsupported",
			"class %s makes empty volumes only; create the claim without a data source", in.Class.Name)
	case in.Node == nil:
		return chooseAgain(in, "NodeGone", "the node that was chosen is gone")
	case in.Node.Labels[api.LabelType] != api.TypeVirtualNode:
		return onRealNode(in)
	case in.Node.Labels[api.LabelStorageAvailable] != api.True:
		return chooseAgain(in, "StorageNotOffered",
			"the provider behind the chosen node offers no storage; let the pod run elsewhere")
	}
	volume := in.volume(corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{
			corev1.ResourceStorage: in.Root.Spec.Resources.Requests[corev1.ResourceStorage]},
		AccessModes: in.Root.Spec.AccessModes,
		VolumeMode:  in.Root.Spec.VolumeMode,
		PersistentVolumeSource: corev1.PersistentVolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: placeholder}},
		NodeAffinity: withRequirement(nil, require(api.LabelRemoteClusterID, corev1.NodeSelectorOpIn,
			in.Node.Labels[api.LabelRemoteClusterID])),
	})
	volume.Labels = map[string]string{api.LabelRemoteClusterID: in.Node.Labels[api.LabelRemoteClusterID]}
	return desired.Plan{Objects: []desired.Object{volume}}
}

// chooseAgain removes the chosen node from the claim, so that the scheduler chooses again.
func chooseAgain(in ClaimInput, reason, message string) desired.Plan {
	p := desired.Block(reason, "%s", message)
	filled := in.Root.DeepCopy()
	delete(filled.Annotations, AnnotationSelectedNode)
	p.Fill = filled
	return p
}

// BackedBy returns the claim that a backing claim backs. A name that is too long for a label is in
// an annotation. Backing claims of former versions have neither, and the name is empty.
func BackedBy(backing desired.Object) types.NamespacedName {
	labels, key := backing.GetLabels(), api.LabelVirtualPVCName
	return types.NamespacedName{
		Namespace: labels[api.LabelVirtualPVCNamespace], Name: cmp.Or(backing.GetAnnotations()[key], labels[key]),
	}
}

// onRealNode plans a volume on the nodes of this cluster.
func onRealNode(in ClaimInput) desired.Plan {
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
		p := chooseAgain(in, "NodeRejected",
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
	spec.NodeAffinity = withRequirement(spec.NodeAffinity,
		require(api.LabelType, corev1.NodeSelectorOpNotIn, api.TypeVirtualNode))
	return desired.Plan{Objects: []desired.Object{backing, in.volume(spec)}}
}

// rejected reports whether the provisioner of the real class has removed the node from the backing
// claim. It does so if the node has no room, so that the scheduler chooses another one; but no pod
// uses the backing claim.
func (in ClaimInput) rejected() bool {
	return in.Backing != nil && in.Backing.Spec.VolumeName == "" && in.Backing.DeletionTimestamp == nil &&
		in.Backing.Annotations[AnnotationSelectedNode] == ""
}

// realClass returns the class of the backing claim, which does not change once that exists; empty
// if there is none.
func (in ClaimInput) realClass() string {
	if in.Backing != nil && in.Backing.Spec.StorageClassName != nil {
		return *in.Backing.Spec.StorageClassName
	}
	candidates := slices.DeleteFunc(slices.Clone(in.Classes), func(c storagev1.StorageClass) bool {
		matches := c.Name == in.RealClass
		if in.RealClass == "" {
			matches = c.Annotations[annotationDefaultClass] == api.True
		}
		return !matches || c.Provisioner == api.StorageProvisioner
	})
	if len(candidates) == 0 {
		return ""
	}
	// Of several defaults Kubernetes takes the newest, then the first by name.
	return slices.MinFunc(candidates, func(a, b storagev1.StorageClass) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	}).Name
}

// volume returns the root's volume with a spec, completed by what depends on claim and class.
func (in ClaimInput) volume(spec corev1.PersistentVolumeSpec) *corev1.PersistentVolume {
	spec.StorageClassName = in.Class.Name
	spec.VolumeAttributesClassName = nil
	spec.PersistentVolumeReclaimPolicy = ptr.Deref(in.Class.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
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

// withRequirement returns an affinity with a further requirement in each of its alternatives.
func withRequirement(
	affinity *corev1.VolumeNodeAffinity, also corev1.NodeSelectorRequirement,
) *corev1.VolumeNodeAffinity {
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
