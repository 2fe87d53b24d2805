// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// These constants limit the status that a provider reports, because it is stored in the consumer's
// etcd and need not come from a kubelet. API servers accept more than a million bytes.
const (
	// longestText is the length to which messages are cut, in bytes. It is the kubelet's limit for
	// the termination message of a container (MaxContainerTerminationMessageLength in
	// pkg/kubelet/container of Kubernetes).
	longestText = 4 << 10
	// largestStatus is the largest accepted status of a pod, in bytes, plus largestContainer for
	// each container: its last two termination messages, and less than a message for all else.
	largestStatus, largestContainer = 8 * longestText, 3 * longestText
	// largestAnswer is the largest accepted status of one of our own objects, in bytes. Credentials
	// have about five thousand, and a certificate authority's bundle may have tens of thousands.
	largestAnswer = 64 << 10
)

// fits returns an error if a provider's status is too large. The error is for users, and the same
// for all sizes.
func fits(status any) error {
	text, err := json.Marshal(status)
	if err == nil && len(text) > largestAnswer {
		err = fmt.Errorf("the provider's answer has more than %d bytes and is ignored: have its administrator "+
			"shorten it, for example labels of nodes", largestAnswer)
	}
	return err
}

// shownStatus returns the part of a remote status that is shown for a pod of that spec: that of its
// containers, with messages cut to longestText. It returns nil if this is still too large.
func shownStatus(remote *corev1.PodStatus, home *corev1.PodSpec) *corev1.PodStatus {
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
			status := &(*statuses)[i]
			cutState(&status.State)
			cutState(&status.LastTerminationState)
			dropHuge(status.AllocatedResources)
			dropHugeOf(status.Resources)
		}
	}
	dropHuge(s.AllocatedResources)
	dropHugeOf(s.Resources)
	if s.Size() > largestStatus+len(names)*largestContainer {
		return nil
	}
	return s
}

// isHuge reports whether an amount is larger than any that Kubernetes writes. A quantity takes an
// exponent of any size, and is compared in time that grows with ten to its power: kube-scheduler at the
// consumer compares amounts of pods' statuses, and a kubelet those of claims.
func isHuge(amount resource.Quantity) bool {
	return !(math.Abs(amount.AsApproximateFloat64()) <= math.MaxInt64) // zero with a large exponent is not a number
}

func dropHuge(amounts corev1.ResourceList) {
	maps.DeleteFunc(amounts, func(_ corev1.ResourceName, amount resource.Quantity) bool { return isHuge(amount) })
}

func dropHugeOf(r *corev1.ResourceRequirements) {
	if r != nil {
		dropHuge(r.Requests)
		dropHuge(r.Limits)
	}
}

// namesOf returns the names of all containers of a pod.
func namesOf(pod *corev1.PodSpec) []string {
	var out []string
	eachContainer(pod, func(c *corev1.Container) { out = append(out, c.Name) })
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

// cut returns the beginning of a message.
func cut(message string) string { return Cut(message, longestText) }

// Cut returns the first bytes of a text, at most that many and without half a rune.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}
