// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/json"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
)

// stays reports whether a label has a meaning only in the cluster that set it.
func stays(key string) bool {
	switch key {
	case api.LabelShadowPod, api.LabelRemoteUnavailable, api.LabelManagedBy, api.LabelCreatorUser:
		return true
	}
	return false
}

// staysAnnotation does the same for annotations. The last-applied configuration belongs to the
// consumer's users, and is as large as the object. The trigger time of endpoints changes when
// nothing else does.
func staysAnnotation(key string) bool {
	switch key {
	case corev1.LastAppliedConfigAnnotation, corev1.EndpointsLastChangeTriggerTime,
		EarlierRestartsAnnotation, HomeUIDAnnotation, api.AnnotationAdmitted:
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
// the labels and annotations of home in place of those reflected before.
func (v View) metadata(home, remote metav1.ObjectMeta, name string) metav1.ObjectMeta {
	if remote.Name == "" {
		remote = metav1.ObjectMeta{Name: name, Namespace: v.Namespaces[home.Namespace]}
	}
	labels := without(home.Labels, func(key string) bool { return stays(key) || v.LabelsDropped[key] })
	maps.Copy(labels, map[string]string{
		api.LabelOrigin:      v.Consumer,
		api.LabelDestination: v.Provider,
		api.LabelNodeName:    v.Node,
	})
	ourLabels, ourAnnotations := ours(remote.ManagedFields)
	remote.Labels = replace(remote.Labels, ourLabels, labels)
	annotations := without(home.Annotations, func(key string) bool {
		return staysAnnotation(key) ||
			v.AnnotationsDropped[key]
	})
	remote.Annotations = replace(remote.Annotations, ourAnnotations, annotations)
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

// replace removes the keys in ours from live, and adds wanted.
func replace(live map[string]string, ours map[string]bool, wanted map[string]string) map[string]string {
	out := without(live, func(key string) bool { return ours[key] })
	maps.Copy(out, wanted)
	return out
}

// ours returns the labels and annotations that we have set, according to the managed fields.
func ours(entries []metav1.ManagedFieldsEntry) (labels, annotations map[string]bool) {
	labels, annotations = map[string]bool{}, map[string]bool{}
	setLabels, setAnnotations := ownKeys(entries)
	for key := range setLabels {
		labels[strings.TrimPrefix(key, "f:")] = true
	}
	for key := range setAnnotations {
		annotations[strings.TrimPrefix(key, "f:")] = true
	}
	return labels, annotations
}

// ownKeys returns the labels and annotations that we have set, as managed fields name them.
func ownKeys(entries []metav1.ManagedFieldsEntry) (labels, annotations map[string]struct{}) {
	labels, annotations = map[string]struct{}{}, map[string]struct{}{}
	for _, entry := range entries {
		if entry.Manager != api.FieldManagerReflection || entry.FieldsV1 == nil {
			continue
		}
		var set struct {
			Metadata struct {
				Labels      map[string]struct{} `json:"f:labels"`
				Annotations map[string]struct{} `json:"f:annotations"`
			} `json:"f:metadata"`
		}
		if json.Unmarshal(entry.FieldsV1.Raw, &set) != nil {
			continue // not ours to judge; the keys then stay
		}
		maps.Copy(labels, set.Metadata.Labels)
		maps.Copy(annotations, set.Metadata.Annotations)
	}
	return labels, annotations
}
