// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// Demand returns the requests of a pod. Of each resource it is the maximum of the sum of the
// containers, the largest init container and the request of the pod as a whole, plus the overhead.
// A limit without a request counts as request, as in the API server. Restartable init containers
// run beside all others, so they count with both. The pod itself counts as one of "pods". No API
// server accepts a pod that requests less as a whole than in its containers; such a ShadowPod could
// exceed the quota.
func Demand(spec *corev1.PodSpec) corev1.ResourceList {
	sum, largest := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range spec.Containers {
		Add(sum, requested(spec.Containers[i].Resources))
	}
	sidecars := corev1.ResourceList{}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways {
			Add(sidecars, requested(c.Resources))
			continue
		}
		alone := maps.Clone(sidecars)
		Add(alone, requested(c.Resources))
		raise(largest, alone)
	}
	Add(sum, sidecars)
	raise(sum, largest)
	if whole := spec.Resources; whole != nil {
		for name, limit := range whole.Limits {
			if _, ok := sum[name]; !ok {
				sum[name] = limit
			}
		}
		raise(sum, whole.Requests)
	}
	Add(sum, spec.Overhead)
	sum[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return sum
}

// requested returns the requests of a container, completed by its limits.
func requested(r corev1.ResourceRequirements) corev1.ResourceList {
	out := maps.Clone(r.Limits)
	if out == nil {
		return r.Requests
	}
	maps.Copy(out, r.Requests)
	return out
}

// Add adds the quantities of more to total.
func Add(total, more corev1.ResourceList) {
	for name, amount := range more {
		q := total[name].DeepCopy()
		q.Add(amount)
		total[name] = q
	}
}

// Subtract subtracts the quantities of less, which total contains, from total.
func Subtract(total, less corev1.ResourceList) {
	for name, amount := range less {
		q := total[name].DeepCopy()
		q.Sub(amount)
		total[name] = q
	}
}

// Most returns the maximum of two quantities for each resource. If one of the lists is that, it is
// returned itself.
func Most(a, b corev1.ResourceList) corev1.ResourceList {
	switch {
	case covers(a, b):
		return a
	case covers(b, a):
		return b
	}
	most := maps.Clone(a)
	raise(most, b)
	return most
}

// Least returns the minimum of two quantities for each resource in both lists. If one of the lists
// is that, it is returned itself.
func Least(a, b corev1.ResourceList) corev1.ResourceList {
	switch {
	case covers(a, b):
		return b
	case covers(b, a):
		return a
	}
	least := corev1.ResourceList{}
	for name, amount := range a {
		if other, ok := b[name]; ok {
			if other.Cmp(amount) < 0 {
				amount = other
			}
			least[name] = amount
		}
	}
	return least
}

// covers reports whether amounts has at least the quantities of others.
func covers(amounts, others corev1.ResourceList) bool {
	for name, amount := range others {
		if have, ok := amounts[name]; !ok || have.Cmp(amount) < 0 {
			return false
		}
	}
	return true
}

// raise raises the quantities of total to at least those of floor.
func raise(total, floor corev1.ResourceList) {
	for name, amount := range floor {
		if have, ok := total[name]; !ok || have.Cmp(amount) < 0 {
			total[name] = amount
		}
	}
}

// QuotaInput holds the input for the decision whether the quota of a user admits a pod.
type QuotaInput struct {
	// User is the value of LabelCreatorUser of the pod.
	User string
	// Quota limits the user; a user without one gets no pod.
	Quota *offloadingv1beta1.QuotaSpec
	// Used holds the requests of the user's other pods.
	Used corev1.ResourceList
	// Pod is the spec of the requested pod.
	Pod corev1.PodSpec
	// Returns says that the pod was granted before. It is created again even if the user has been
	// cordoned since.
	Returns bool
}

// Refusal returns why the quota refuses the pod, or empty if it is admitted. A nil input admits
// every pod.
func Refusal(in *QuotaInput) string {
	switch {
	case in == nil:
		return ""
	case in.Quota == nil:
		return fmt.Sprintf("failed getting quota of user %q", in.User)
	case in.Quota.Cordoned && !in.Returns:
		return "user is cordoned"
	}
	if reason := negative(&in.Pod); reason != "" {
		return reason
	}
	if reason := unbounded(in.Quota.LimitsEnforcement, &in.Pod); reason != "" {
		return reason
	}
	demand := Demand(&in.Pod)
	for _, name := range slices.Sorted(maps.Keys(demand)) {
		if reason := exceeded(name, in.Quota.Resources, in.Used, demand[name]); reason != "" {
			return reason
		}
	}
	return ""
}

// negative returns which quantity of a pod is negative, or empty. No API server accepts such a pod;
// such a ShadowPod could exceed the quota.
func negative(pod *corev1.PodSpec) string {
	asked := []corev1.ResourceRequirements{{Requests: pod.Overhead}}
	if pod.Resources != nil {
		asked = append(asked, *pod.Resources)
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		asked = append(asked, c.Resources)
	}
	for _, r := range asked {
		for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
			for _, name := range slices.Sorted(maps.Keys(list)) {
				if amount := list[name]; amount.Sign() < 0 {
					return fmt.Sprintf("%s of %s is less than nothing", name, amount.String())
				}
			}
		}
	}
	return ""
}

// unbounded returns which request or limit the enforcement requires and the pod lacks, or empty. It
// must be set for the pod as a whole, or in each container.
func unbounded(enforcement offloadingv1beta1.LimitsEnforcement, pod *corev1.PodSpec) string {
	hard := enforcement == offloadingv1beta1.HardLimitsEnforcement
	if !hard && enforcement != offloadingv1beta1.SoftLimitsEnforcement {
		return ""
	}
	if whole := pod.Resources; whole != nil && !whole.Requests.Cpu().IsZero() && !whole.Requests.Memory().IsZero() {
		return unequal(hard, *whole, "the pod")
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() {
			return fmt.Sprintf("CPU and/or memory requests not set for container %s", c.Name)
		}
		if reason := unequal(hard, c.Resources, "container "+c.Name); reason != "" {
			return reason
		}
	}
	return ""
}

// unequal returns which request has no equal limit, or empty. It checks nothing unless hard is set.
func unequal(hard bool, r corev1.ResourceRequirements, of string) string {
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		limit, ok := r.Limits[name]
		if request := r.Requests[name]; hard && (!ok || limit.Cmp(request) != 0) {
			return fmt.Sprintf("%s limits and requests are not equal for %s", name, of)
		}
	}
	return ""
}

// exceeded returns how a request exceeds the free amount of a resource, or empty.
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
	const message = "peering %s quota usage exceeded - free %s / requested %s"
	return fmt.Sprintf(message, name, free.String(), requested.String())
}
