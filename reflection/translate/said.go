// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/json"
	"fmt"
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
	// largestAnswer is how many bytes the status of an object of ours has that comes back: credentials have about five
	// thousand, and a certificate authority's bundle may have tens of thousands.
	largestAnswer = 64 << 10
)

// fits reports whether what a provider answers is small enough to come back. The error is for the user, and the
// same whatever the size is.
func fits(status any) error {
	text, err := json.Marshal(status)
	if err == nil && len(text) > largestAnswer {
		err = fmt.Errorf("the provider's answer has more than %d bytes and is ignored: have its administrator "+
			"shorten it, for example labels of nodes", largestAnswer)
	}
	return err
}

// said is what is shown of a remote status on a pod of that spec: of containers it has, without the ends of
// messages that are longer than any of Kubernetes; nil if it is larger than any even so.
func said(remote *corev1.PodStatus, home *corev1.PodSpec) *corev1.PodStatus {
	s := remote.DeepCopy()
	s.Message = cut(s.Message)
	for i := range s.Conditions {
		s.Conditions[i].Message = cut(s.Conditions[i].Message)
	}
	names := namesOf(home)
	for _, statuses := range []*[]corev1.ContainerStatus{&s.ContainerStatuses, &s.InitContainerStatuses,
		&s.EphemeralContainerStatuses} {
		*statuses = slices.DeleteFunc(*statuses,
			func(c corev1.ContainerStatus) bool { return !slices.Contains(names, c.Name) })
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

// cut leaves the beginning of a message.
func cut(message string) string { return Cut(message, longestText) }

// Cut leaves the first bytes of a text, at most that many and without half a rune.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
