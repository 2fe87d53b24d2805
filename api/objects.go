// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Older reports whether an object was created before another. Objects created in the same second are ordered by
// namespace and name.
func Older(a, b metav1.Object) bool {
	return cmp.Or(
		a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time),
		cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()),
	) < 0
}

// Oldest returns the oldest object of a list, which is used where one peer has several of a kind. It returns nil if
// the list is empty.
func Oldest[T any, P interface {
	*T
	metav1.Object
}](list []T) P {
	pointers := make([]P, len(list))
	for i := range list {
		pointers[i] = &list[i]
	}
	return OldestOf(pointers)
}

// OldestOf returns the oldest object of a list of pointers. It returns nil if the list is empty.
func OldestOf[T any, P interface {
	*T
	metav1.Object
}](list []P) (oldest P) {
	for _, p := range list {
		if oldest == nil || Older(p, oldest) {
			oldest = p
		}
	}
	return oldest
}

// Finished reports whether a pod in this phase has ended.
func Finished(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// NodeReady reports whether the condition Ready of a Node is true.
func NodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// NodeAddressesDiffer reports whether an update changes the addresses of a Node.
func NodeAddressesDiffer(before, after *corev1.Node) bool {
	return !slices.Equal(before.Status.Addresses, after.Status.Addresses)
}
