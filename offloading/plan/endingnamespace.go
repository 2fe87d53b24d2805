// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// heldInterval is how often a namespace that users' finalizers hold is looked at again: not all that they
// may hold is watched.
const heldInterval = 5 * time.Second

// Held returns the finalizers by which users' controllers hold a namespace that is being deleted, its
// pods or its claims, each with its object. Until those controllers are done, the remote namespaces
// stay, with what runs in them and their volumes.
func Held(namespace *corev1.Namespace, pods []corev1.Pod, claims []corev1.PersistentVolumeClaim) (held []string) {
	add := func(kind string, object metav1.Object) {
		for _, finalizer := range object.GetFinalizers() {
			if !endsByItself(finalizer) {
				held = append(held, fmt.Sprintf("%s on %s %s", finalizer, kind, object.GetName()))
			}
		}
	}
	add("namespace", namespace)
	for i := range pods {
		add("pod", &pods[i])
	}
	for i := range claims {
		add("claim", &claims[i])
	}
	return held
}

// endsSlowly reports whether a pod may take longer to end than a provider gives it in a namespace that is taken
// back.
func endsSlowly(pods []corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		grace := cmp.Or(pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds)
		return grace != nil && time.Duration(*grace)*time.Second > takenBackGrace
	})
}

// endsByItself reports whether Liqo or Kubernetes removes a finalizer when what it protects has ended.
func endsByItself(finalizer string) bool {
	domain, _, _ := strings.Cut(finalizer, "/")
	return domain == "liqo.io" || strings.HasSuffix(domain, ".liqo.io") || slices.Contains([]string{
		metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, batchv1.JobTrackingFinalizer,
		"kubernetes.io/pvc-protection", // PVCProtectionFinalizer in pkg/volume/util of Kubernetes
	}, finalizer)
}
