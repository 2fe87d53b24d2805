// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import "strings"

// ReasonFieldsDropped is the reason of a ShadowPod whose pod lacks fields, because the provider's API server
// does not know them. Upgrade the provider's Kubernetes, or make the pod without them.
const ReasonFieldsDropped = "FieldsDropped"

// IsVolumeSource reports whether a field of a pod, like spec.volumes.csi, is the source of a volume or of a
// projection. Without it a volume would be an emptyDir, and a projection would lack files.
func IsVolumeSource(path string) bool {
	source, ok := strings.CutPrefix(path, "spec.volumes.")
	return ok && !strings.Contains(strings.TrimPrefix(source, "projected.sources."), ".")
}
