// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// ReasonContainerRefused: the provider refuses an ephemeral container of a pod that runs, as Pod Security does
// with one of 'kubectl debug'. The message says why.
const ReasonContainerRefused = "ContainerRefused"

// refusedContainers returns the statuses of ephemeral containers that the provider refuses to add to its pod.
// 'kubectl debug' prints their messages while it waits for the container.
func refusedContainers(
	home *corev1.Pod, shadow *offv1beta1.ShadowPod, remote *corev1.Pod, v View,
) []corev1.ContainerStatus {
	why := refusal(shadow, v)
	if why == nil || shadow == nil || v.Refusal == nil && why.ObservedGeneration != shadow.Generation {
		return nil
	}
	message := cut(why.Message)
	if strings.Contains(message, "violates PodSecurity") {
		message += "; 'kubectl debug' with --profile=baseline or restricted asks for less, or have the provider " +
			"allow more with its value offloading.podSecurity"
	}
	var out []corev1.ContainerStatus
	for _, c := range home.Spec.EphemeralContainers {
		named := func(has corev1.EphemeralContainer) bool { return has.Name == c.Name }
		sent := v.Refusal != nil || slices.ContainsFunc(shadow.Spec.Pod.EphemeralContainers, named)
		if sent && !slices.ContainsFunc(remote.Spec.EphemeralContainers, named) {
			out = append(out, corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: ReasonContainerRefused, Message: message},
			}})
		}
	}
	return out
}
