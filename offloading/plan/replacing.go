// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Replacing lists kinds of controllers, as Kind.group, that create another pod for each one that is
// deleted, at no loss. Those of Kubernetes are known and need not be in it. The controller of any other
// kind may take a deleted pod for a failure, as that of a workflow does.
type Replacing []string

// replacing lists the kinds of Kubernetes. A DaemonSet is not one of them: it would create a pod for the same
// node.
var replacing = Replacing{"ReplicaSet.apps", "StatefulSet.apps", "ReplicationController"}

// job is the kind that counts a deleted pod as failed, and releases a pod without its labels.
const job = "Job.batch"

// replaces reports whether the controller of a pod creates another when it is deleted.
func (r Replacing) replaces(pod *corev1.Pod) bool {
	kind := controllerKind(pod)
	return slices.Contains(replacing, kind) || slices.Contains(r, kind)
}

// controllerKind returns the kind of the controller of a pod, as Kind.group; empty if it has none.
func controllerKind(pod *corev1.Pod) string {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return ""
	}
	return schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind().String()
}
