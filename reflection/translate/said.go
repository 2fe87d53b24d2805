// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// What a provider says of a pod lies in home's etcd, and need not come from a kubelet: an API server takes more
// than a million bytes.
const (
	// longestText is how many bytes of a message are shown. Kubelets let a container say that much at its end
	// (MaxContainerTerminationMessageLength in pkg/kubelet/container of Kubernetes).
	longestText = 4 << 10
	// largestStatus is how many bytes a status has that is shown, and largestContainer how many more for each
	// container: the ends of this one and of the one before, and less than a message for all else.
	largestStatus, largestContainer = 8 * longestText, 3 * longestText
)

// said is what is shown of a remote status on a pod of that spec: of containers it has, without the ends of
// messages that are longer than any of Kubernetes; nil if it is larger than any even so.
func said(remote *corev1.PodStatus, home *corev1.PodSpec) *corev1.PodStatus {
	s := remote.DeepCopy()
	s.Message = cut(s.Message)
	for i := range s.Conditions {
		s.Conditions[i].Message = cut(s.Conditions[i].Message)
	}
	names := namesOf(home)
	for _, statuses := range []*[]corev1.ContainerStatus{&s.ContainerStatuses, &s.InitContainerStatuses, &s.EphemeralContainerStatuses} {
		*statuses = slices.DeleteFunc(*statuses, func(c corev1.ContainerStatus) bool { return !slices.Contains(names, c.Name) })
		for i := range *statuses {
			cutState(&(*statuses)[i].State)
			cutState(&(*statuses)[i].LastTerminationState)
		}
	}
	if s.Size() > largestStatus+len(names)*largestContainer {
		return nil
	}
	return s
}

// namesOf are those of all containers of a pod.
func namesOf(pod *corev1.PodSpec) []string {
	var out []string
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		out = append(out, c.Name)
	}
	for _, c := range pod.EphemeralContainers {
		out = append(out, c.Name)
	}
	return out
}

func cutState(s *corev1.ContainerState) {
	if s.Waiting != nil {
		s.Waiting.Message = cut(s.Waiting.Message)
	}
	if s.Terminated != nil {
		s.Terminated.Message = cut(s.Terminated.Message)
	}
}

// cut leaves the beginning of a message, without half a rune.
func cut(message string) string {
	if len(message) <= longestText {
		return message
	}
	return strings.ToValidUTF8(message[:longestText], "")
}
