// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Source gives the objects that explain the state of another one.
type Source struct {
	// Command is how the user calls liqoctl. It is part of remedies.
	Command string
	// Read reads the object of this kind, namespace and name into its argument. Its errors are those of an API server.
	Read func(Object) error
	// Pods lists the pods of a namespace.
	Pods func(namespace string, selected labels.Selector) ([]corev1.Pod, error)
	// Warning returns the message of the latest warning event about an object; empty if there is none.
	Warning func(Object) string
}

// Reason reads an object and returns whether it exists and what is wrong with it: the first answer
// that its conditions, its pods, its events or its finalizers give.
func (s Source) Reason(object Object) (reason string, found bool) {
	err := s.Read(object)
	switch {
	case apierrors.IsNotFound(err):
		return s.Warning(object), false
	case apierrors.IsForbidden(err):
		return "", true
	case err != nil:
		return oneLine(err.Error()), true
	}
	if reason = Problem(object); reason == "" {
		switch o := object.(type) {
		case *appsv1.Deployment:
			reason = s.podProblem(o.Namespace, o.Spec.Selector)
		case *appsv1.DaemonSet:
			reason = s.podProblem(o.Namespace, o.Spec.Selector)
		}
	}
	if reason == "" {
		reason = s.Warning(object)
	}
	if reason == "" && object.GetDeletionTimestamp() != nil {
		reason = "still being deleted, held by " + fmt.Sprint(finalizersOf(object))
	}
	return reason, true
}

// finalizersOf returns what must be removed from an object before it is deleted.
func finalizersOf(object Object) []string {
	finalizers := slices.Clone(object.GetFinalizers()) // of an object that may be shared
	if n, ok := object.(*corev1.Namespace); ok {
		for _, finalizer := range n.Spec.Finalizers {
			finalizers = append(finalizers, string(finalizer))
		}
	}
	return finalizers
}

// podProblem returns why the pods of a workload are not ready; empty if the user may not list them.
func (s Source) podProblem(namespace string, of *metav1.LabelSelector) string {
	selector, err := metav1.LabelSelectorAsSelector(of)
	if err != nil {
		return err.Error()
	}
	pods, err := s.Pods(namespace, selector)
	switch {
	case apierrors.IsForbidden(err):
		return ""
	case err != nil:
		return oneLine(err.Error())
	}
	if len(pods) == 0 {
		return "no pod was made; check that the cluster's controllers run"
	}
	for i := range pods {
		if reason := s.podReason(&pods[i]); reason != "" {
			return reason
		}
	}
	return ""
}

// podReason returns why a pod is not ready; empty if it is.
func (s Source) podReason(pod *corev1.Pod) string {
	if isHealthy(pod) {
		return ""
	}
	reason := PodProblem(pod)
	if reason == "" && pod.Status.Phase == corev1.PodPending {
		reason = s.Warning(pod)
	}
	for _, c := range pod.Status.Conditions {
		if reason == "" && c.Type == corev1.PodReady {
			reason = oneLine(c.Message)
		}
	}
	return reason
}

// PodProblem returns what the status of a pod says of why it is not ready; empty if it is, or if only events say it.
func PodProblem(pod *corev1.Pod) string {
	if problem, _ := ImageProblem(pod); problem != "" {
		return problem
	}
	const look = "see 'kubectl -n %s logs %s'"
	if failed := pod.Status.Reason + ": " + oneLine(pod.Status.Message); pod.Status.Phase == corev1.PodFailed &&
		failed != ": " {
		return "failed: " + strings.TrimSuffix(strings.TrimPrefix(failed, ": "), ": ")
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch last, now := s.LastTerminationState.Terminated, s.State; {
		case now.Waiting != nil && last != nil:
			return fmt.Sprintf("container %s ended with code %d (%s); "+look, s.Name, last.ExitCode, now.Waiting.Reason,
				pod.Namespace, pod.Name+" --previous")
		case now.Waiting != nil && now.Waiting.Message != "":
			return fmt.Sprintf("container %s: %s: %s", s.Name, now.Waiting.Reason, now.Waiting.Message)
		case now.Terminated != nil && now.Terminated.ExitCode != 0:
			return fmt.Sprintf("container %s ended with code %d; "+look, s.Name, now.Terminated.ExitCode, pod.Namespace,
				pod.Name)
		case now.Running != nil && !s.Ready:
			return fmt.Sprintf("container %s runs but is not ready; "+look, s.Name, pod.Namespace, pod.Name)
		}
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status != corev1.ConditionTrue {
			return fmt.Sprintf("no node takes pod %s: %s"+makeRoom, pod.Name, condition.Message)
		}
	}
	return ""
}

// Remedies. The first and the last are of no use for pods at a provider.
const (
	makeRoom  = "; make room on one, or take away what is named"
	elsewhere = "; request less, let the pod run elsewhere, or have the provider's administrator make room"
	nameImage = "; name one that nodes can pull with --set image.name=… and tag=…, give credentials with " +
		"imagePullSecrets, or load it into the nodes"
)

// providerReason returns why a pod at a provider is not ready; empty if it is.
func (s Source) providerReason(pod *corev1.Pod, provider string) string {
	reason := strings.TrimSuffix(s.podReason(pod), nameImage)
	if reason == "" {
		return ""
	}
	if full, ok := strings.CutSuffix(reason, makeRoom); ok {
		reason = full + elsewhere
	}
	return "at " + provider + ": " + reason
}

// absent marks the kubelet's message about an image that its registry does not have.
const absent = "code = NotFound"

// ImageProblem returns which image a pod does not get, and whether trying again is of no use; empty
// if it gets all.
func ImageProblem(pod *corev1.Pod) (problem string, final bool) {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.State.Waiting == nil {
			continue
		}
		switch reason := s.State.Waiting.Reason; reason {
		case "ErrImageNeverPull", "InvalidImageName":
			final = true
			fallthrough
		case "ErrImagePull", "ImagePullBackOff", "RegistryUnavailable", "ImageInspectError":
			return fmt.Sprintf("node %s cannot get image %q (%s: %s)"+nameImage,
					pod.Spec.NodeName, s.Image, reason, oneLine(s.State.Waiting.Message)),
				final || strings.Contains(s.State.Waiting.Message, absent)
		}
	}
	return "", false
}
