// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
)

// copyOf returns a copy of a remote object; an empty object for nil.
func copyOf[T any, P interface {
	*T
	DeepCopyInto(*T)
}](remote P) P {
	out := new(T)
	if remote != nil {
		remote.DeepCopyInto(out)
	}
	return out
}

// stays reports whether a label has a meaning only in the cluster that set it.
func stays(key string) bool {
	switch key {
	case api.LabelShadowPod, api.LabelRemoteUnavailable, api.LabelManagedBy, api.LabelCreatorUser, labelArgoInstance:
		return true
	}
	return false
}

// These are labels and annotations by which Argo CD finds the objects of an application. Versions before 3 find
// them by the label, which charts set, too:
// https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/
const (
	labelInstance        = "app.kubernetes.io/instance"
	labelArgoInstance    = "argocd.argoproj.io/instance" // which its documentation proposes instead
	annotationTrackingID = "argocd.argoproj.io/tracking-id"
)

// unpruned keeps an Argo CD of the provider from deleting a remote object because an application there is named
// as one of home: when that is synchronized, and when it is deleted.
var unpruned = map[string]string{
	"argocd.argoproj.io/compare-options": "IgnoreExtraneous",
	"argocd.argoproj.io/sync-options":    "Prune=false,Delete=false",
}

// staysAnnotation reports whether an annotation has a meaning only in the cluster that set it. The
// last-applied configuration serves only the consumer's kubectl, and doubles the size of the object. The
// trigger time of endpoints would cause a write for each change of an endpoint.
func staysAnnotation(key string) bool {
	switch key {
	case corev1.LastAppliedConfigAnnotation, corev1.EndpointsLastChangeTriggerTime,
		EarlierRestartsAnnotation, HomeUIDAnnotation, api.AnnotationAdmitted, annotationTrackingID:
		return true
	}
	domain, _, _ := strings.Cut(key, "/")
	switch domain {
	case "pv.kubernetes.io", "volume.kubernetes.io", "volume.beta.kubernetes.io": // how a claim was bound
		return true
	}
	return false
}

// metadata returns the metadata of a remote object: that of remote (zero for a new object), with
// the home object's labels and annotations in place of those reflected before.
func (v View) metadata(home, remote metav1.ObjectMeta, name string) metav1.ObjectMeta {
	if remote.Name == "" {
		remote = metav1.ObjectMeta{Name: name, Namespace: v.Namespaces[home.Namespace]}
	}
	labels := without(home.Labels, func(key string) bool {
		return stays(key) || slices.Contains(v.LabelsDropped, key)
	})
	maps.Copy(labels, map[string]string{
		api.LabelOrigin:      v.Consumer,
		api.LabelDestination: v.Provider,
		api.LabelNodeName:    v.Node,
	})
	annotations := without(home.Annotations, func(key string) bool {
		return staysAnnotation(key) || slices.Contains(v.AnnotationsDropped, key)
	})
	if labels[labelInstance] != "" {
		maps.Copy(annotations, unpruned)
	}
	own := ownKeys(remote.ManagedFields).Metadata
	remote.Labels = replace(remote.Labels, own.Labels, labels)
	remote.Annotations = replace(remote.Annotations, own.Annotations, annotations)
	return remote
}

// without copies all but the dropped keys.
func without(from map[string]string, dropped func(string) bool) map[string]string {
	out := make(map[string]string, len(from)+3) // 3: labels of our own
	for key, value := range from {
		if !dropped(key) {
			out[key] = value
		}
	}
	return out
}

// replace removes the keys in own from live, and adds wanted.
func replace(live map[string]string, own map[string]struct{}, wanted map[string]string) map[string]string {
	out := without(live, func(key string) bool {
		_, isOwn := own["f:"+key]
		return isOwn
	})
	maps.Copy(out, wanted)
	return out
}

// metadataFields is the part of managed fields that names labels and annotations, as "f:<key>".
type metadataFields struct {
	Metadata struct {
		Labels      map[string]struct{} `json:"f:labels,omitempty"`
		Annotations map[string]struct{} `json:"f:annotations,omitempty"`
	} `json:"f:metadata"`
}

// ownKeys returns the labels and annotations that we have set.
func ownKeys(entries []metav1.ManagedFieldsEntry) metadataFields {
	var own metadataFields
	own.Metadata.Labels, own.Metadata.Annotations = map[string]struct{}{}, map[string]struct{}{}
	for _, entry := range entries {
		if entry.Manager != api.FieldManagerReflection || entry.FieldsV1 == nil {
			continue
		}
		var set metadataFields
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &set) != nil {
			continue // unknown format: these keys stay
		}
		maps.Copy(own.Metadata.Labels, set.Metadata.Labels)
		maps.Copy(own.Metadata.Annotations, set.Metadata.Annotations)
	}
	return own
}
