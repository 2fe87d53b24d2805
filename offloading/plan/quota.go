// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// Demand is what a pod asks for: per resource the larger of the sum of its containers and its
// largest init container. Restartable init containers run beside the others, so they count with
// both. A pod is one of "pods".
func Demand(spec *corev1.PodSpec) corev1.ResourceList {
	sum, largest := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range spec.Containers {
		Add(sum, spec.Containers[i].Resources.Requests)
	}
	sidecars := corev1.ResourceList{}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			Add(sidecars, c.Resources.Requests)
			continue
		}
		alone := maps.Clone(sidecars)
		Add(alone, c.Resources.Requests)
		raise(largest, alone)
	}
	Add(sum, sidecars)
	raise(sum, largest)
	sum[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return sum
}

// Add adds the amounts of more to total.
func Add(total, more corev1.ResourceList) {
	for name, amount := range more {
		q := total[name].DeepCopy()
		q.Add(amount)
		total[name] = q
	}
}

func raise(total, floor corev1.ResourceList) {
	for name, amount := range floor {
		if have, ok := total[name]; !ok || have.Cmp(amount) < 0 {
			total[name] = amount
		}
	}
}

// QuotaInput is what decides whether a consumer's user may have one more pod.
type QuotaInput struct {
	// Quota bounds the user.
	Quota offloadingv1beta1.QuotaSpec
	// Used is what the user's other pods ask for.
	Used corev1.ResourceList
	// Pod is the pod asked for.
	Pod corev1.PodSpec
}

// Refusal says why the pod is refused, or is empty when it is admitted.
func Refusal(in QuotaInput) string {
	if in.Quota.Cordoned {
		return "user is cordoned"
	}
	for _, c := range slices.Concat(in.Pod.InitContainers, in.Pod.Containers) {
		if reason := unbounded(in.Quota.LimitsEnforcement, &c); reason != "" {
			return reason
		}
	}
	demand := Demand(&in.Pod)
	for _, name := range slices.Sorted(maps.Keys(demand)) {
		if reason := exceeded(name, in.Quota.Resources, in.Used, demand[name]); reason != "" {
			return reason
		}
	}
	return ""
}

// unbounded says what a container leaves open that the enforcement wants to be set.
func unbounded(enforcement offloadingv1beta1.LimitsEnforcement, c *corev1.Container) string {
	if enforcement != offloadingv1beta1.SoftLimitsEnforcement && enforcement != offloadingv1beta1.HardLimitsEnforcement {
		return ""
	}
	requests := c.Resources.Requests
	if requests.Cpu().IsZero() || requests.Memory().IsZero() {
		return fmt.Sprintf("CPU and/or memory requests not set for container %s", c.Name)
	}
	if enforcement == offloadingv1beta1.SoftLimitsEnforcement {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		limit, ok := c.Resources.Limits[name]
		if request := requests[name]; !ok || limit.Cmp(request) != 0 {
			return fmt.Sprintf("%s limits and requests are not equal for container %s", name, c.Name)
		}
	}
	return ""
}

func exceeded(name corev1.ResourceName, hard, used corev1.ResourceList, requested resource.Quantity) string {
	limit, ok := hard[name]
	switch {
	case !ok && name == corev1.ResourcePods:
		return ""
	case !ok:
		return fmt.Sprintf("%s quota limit not found for this peering", name)
	}
	free := limit.DeepCopy()
	free.Sub(used[name])
	if free.Cmp(requested) >= 0 {
		return ""
	}
	return fmt.Sprintf("peering %s quota usage exceeded - free %s / requested %s", name, free.String(), requested.String())
}
