// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// The functions below trim the thousands of objects of pods in the caches of a virtual kubelet to
// the fields that this package reads.
//
//	object             kept
//	home pod, Pending  all
//	home pod, later    its status; of its spec what a ShadowPod that exists is compared with, and the
//	                   names of ConfigMaps, Secrets and claims
//	ShadowPod          its status; of its spec the fields that may change, what it requires of nodes,
//	                   and the volumes of tokens in a Secret of the former name
//	remote pod         its status; its owner, its node, and the fields of its spec that may change
//	Secret of tokens   its keys
//
// A trimmed object must not be written back: InPart reports whether an object is trimmed.

// TrimPod keeps the parts of a home pod that are read after it has started. A pod whose remote pod
// is to be recreated is read whole first.
func TrimPod(p *corev1.Pod) {
	p.ManagedFields, p.OwnerReferences, p.GenerateName = nil, nil, ""
	delete(p.Annotations, corev1.LastAppliedConfigAnnotation) // stays at the consumer
	if p.Status.Phase == corev1.PodPending || p.Status.Phase == "" {
		return
	}
	in := p.Spec
	p.Spec = corev1.PodSpec{
		NodeName:            in.NodeName,
		OS:                  in.OS,
		RestartPolicy:       in.RestartPolicy,
		ServiceAccountName:  in.ServiceAccountName,
		ReadinessGates:      in.ReadinessGates,
		EphemeralContainers: in.EphemeralContainers,
		Volumes:             append(secretSources(in.Volumes), referencesOf(&in)...),
	}
	keepChangeable(&p.Spec, &in)
	for i := range in.Containers {
		p.Spec.Containers[i].Ports = slices.Collect(hostPorts(&corev1.PodSpec{HostNetwork: in.HostNetwork,
			Containers: in.Containers[i : i+1]}))
	}
}

// keepChangeable keeps the fields that amend compares.
func keepChangeable(out, in *corev1.PodSpec) {
	out.Containers, out.InitContainers = trimContainers(in.Containers), trimContainers(in.InitContainers)
	out.Resources, out.ActiveDeadlineSeconds, out.Tolerations = in.Resources, in.ActiveDeadlineSeconds, in.Tolerations
}

// trimContainers keeps the names, images and resources of containers.
func trimContainers(in []corev1.Container) []corev1.Container {
	if in == nil {
		return nil
	}
	out := make([]corev1.Container, len(in))
	for i := range in {
		out[i] = corev1.Container{Name: in[i].Name, Image: in[i].Image, Resources: in[i].Resources}
	}
	return out
}

// secretSources keeps the projections of volumes that become keys of the Secret of tokens.
func secretSources(in []corev1.Volume) []corev1.Volume {
	var out []corev1.Volume
	for _, v := range in {
		if v.Projected == nil {
			continue
		}
		kept := &corev1.ProjectedVolumeSource{}
		for _, s := range v.Projected.Sources {
			if s.ServiceAccountToken != nil || s.ClusterTrustBundle != nil || s.PodCertificate != nil {
				kept.Sources = append(kept.Sources, s)
			}
		}
		if len(kept.Sources) > 0 {
			out = append(out, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{Projected: kept}})
		}
	}
	return out
}

// TrimShadowPod keeps the parts of a ShadowPod that are read while it is unchanged. It is read
// whole before it is changed.
func TrimShadowPod(p *offv1beta1.ShadowPod) {
	p.OwnerReferences = nil
	in := p.Spec.Pod
	p.Spec.Pod = corev1.PodSpec{
		Volumes:                   formerTokens(p),
		EphemeralContainers:       in.EphemeralContainers,
		NodeSelector:              in.NodeSelector,
		Affinity:                  in.Affinity,
		TopologySpreadConstraints: in.TopologySpreadConstraints,
	}
	keepChangeable(&p.Spec.Pod, &in)
}

// InPart reports whether a home pod or ShadowPod was trimmed. The API server sets a pull policy in
// whole ones; an object without one is merely read once more.
func InPart(obj any) bool {
	var containers []corev1.Container
	switch p := obj.(type) {
	case *corev1.Pod:
		containers = p.Spec.Containers
	case *offv1beta1.ShadowPod:
		containers = p.Spec.Pod.Containers
	}
	return len(containers) > 0 && containers[0].ImagePullPolicy == ""
}

// TrimReport keeps the parts of a remote pod that are pulled, and those that identify its owner.
func TrimReport(p *corev1.Pod) {
	meta, spec, status := p.ObjectMeta, p.Spec, p.Status
	status.HostIP, status.HostIPs, status.NominatedNodeName, status.QOSClass = "", nil, "", ""
	*p = corev1.Pod{
		TypeMeta: p.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID, ResourceVersion: meta.ResourceVersion,
			Generation:        meta.Generation,
			DeletionTimestamp: meta.DeletionTimestamp, DeletionGracePeriodSeconds: meta.DeletionGracePeriodSeconds,
		},
		Spec: corev1.PodSpec{
			NodeName:                      spec.NodeName,
			SchedulingGates:               spec.SchedulingGates,
			TerminationGracePeriodSeconds: spec.TerminationGracePeriodSeconds,
			Containers:                    trimContainers(spec.Containers),
			InitContainers:                trimContainers(spec.InitContainers),
			EphemeralContainers:           namesOnly(spec.EphemeralContainers),
			Resources:                     spec.Resources,
			ActiveDeadlineSeconds:         spec.ActiveDeadlineSeconds,
		},
		Status: status,
	}
	if owner := metav1.GetControllerOfNoCopy(&corev1.Pod{ObjectMeta: meta}); owner != nil {
		p.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	if uid, ok := meta.Annotations[HomeUIDAnnotation]; ok {
		p.Annotations = map[string]string{HomeUIDAnnotation: uid}
	}
}

func namesOnly(in []corev1.EphemeralContainer) []corev1.EphemeralContainer {
	var out []corev1.EphemeralContainer
	for _, c := range in {
		out = append(out,
			corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: c.Name}})
	}
	return out
}

// TrimTokens keeps the keys of the Secret of a pod's tokens: tokens are only written, never read.
func TrimTokens(s *corev1.Secret) {
	s.OwnerReferences = nil
	for key := range s.Data {
		s.Data[key] = nil
	}
}

// OwnKeys keeps the managed fields that record which labels and annotations we have set: no others
// are read.
func OwnKeys(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	own := ownKeys(entries)
	if len(own.Metadata.Labels)+len(own.Metadata.Annotations) == 0 {
		return nil
	}
	raw, err := json.Marshal(own)
	if err != nil {
		return entries // names of fields always encode
	}
	return []metav1.ManagedFieldsEntry{{Manager: api.FieldManagerReflection, FieldsV1: metav1.NewFieldsV1(string(raw))}}
}
