// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import "strings"

// ReasonFieldsDropped is the reason of a ShadowPod whose pod lacks fields, because the provider's API server
// does not know them. Upgrade the provider's Kubernetes, or make the pod without them.
const ReasonFieldsDropped = "FieldsDropped"

// ReasonMetadataLeftOut is the reason of a ShadowPod whose pod lacks labels or annotations, because controllers of
// the provider act on them and pods of consumers may not have them. The message names the remedies.
const ReasonMetadataLeftOut = "MetadataLeftOut"

// LabelPath returns how a label is named in messages and events: metadata.labels[key].
func LabelPath(key string) string { return "metadata.labels[" + key + "]" }

// AnnotationPath returns how an annotation is named in messages and events: metadata.annotations[key].
func AnnotationPath(key string) string { return "metadata.annotations[" + key + "]" }

// IsVolumeSource reports whether a field of a pod, like spec.volumes.csi, is the source of a volume or of a
// projection. Without it a volume would be an emptyDir, and a projection would lack files.
func IsVolumeSource(path string) bool {
	source, ok := strings.CutPrefix(path, "spec.volumes.")
	return ok && !strings.Contains(strings.TrimPrefix(source, "projected.sources."), ".")
}
