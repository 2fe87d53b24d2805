// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package offloading

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestConsumersCannotMakeManySeries: of a Quota with more resources than are measured, those of
// every node are.
func TestConsumersCannotMakeManySeries(t *testing.T) {
	t.Parallel()
	bounded := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourcePods: resource.MustParse("1")}
	for i := range 100 {
		bounded[corev1.ResourceName(fmt.Sprintf("a.example.com/%d", i))] = resource.MustParse("1")
	}
	got := measured(bounded)
	if len(got) != measuredResources || !slices.Contains(got, corev1.ResourceCPU) || !slices.Contains(got, corev1.ResourcePods) {
		t.Errorf("measured: %v", got)
	}
}
