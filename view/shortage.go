// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	offloadingplan "github.com/liqo-go/liqo/offloading/plan"
)

// shortages returns, by provider, which granted amounts do not suffice for pods that wait for a
// node, and what helps. One pod stands for all that wait for the same resource of a node.
func (s *Snapshot) shortages() map[string][]string {
	waiting, out := s.waiting(), map[string][]string{}
	if len(waiting) == 0 {
		return out
	}
	for i := range s.VirtualNodes.Items {
		v := &s.VirtualNodes.Items[i]
		at := slices.IndexFunc(s.Nodes.Items, func(n corev1.Node) bool { return n.Name == v.Name })
		if at < 0 {
			continue
		}
		hard, used, reported := v.Spec.ResourceQuota.Hard, s.Requested(v.Name), map[corev1.ResourceName]bool{}
		for _, pod := range waiting {
			for _, name := range pod.short {
				left, granted := hard[name]
				left = left.DeepCopy()
				left.Sub(used[name])
				if asked := pod.demand[name]; granted && !reported[name] && asked.Cmp(left) > 0 &&
					pod.selects(&s.Nodes.Items[at]) {
					reported[name] = true
					out[v.Spec.ClusterID] = append(out[v.Spec.ClusterID], s.shortage(v, pod, name, left, used))
				}
			}
		}
	}
	return out
}

// shortage says that a pod requests more of a resource than is left of what was granted.
func (s *Snapshot) shortage(v *offv1beta1.VirtualNode, pod waitingPod, name corev1.ResourceName,
	left resource.Quantity, used corev1.ResourceList) string {
	granted, asked := v.Spec.ResourceQuota.Hard[name].DeepCopy(), pod.demand[name]
	if left.Sign() < 0 { // pods may be older than what is granted now
		left = resource.Quantity{Format: granted.Format}
	}
	problem := fmt.Sprintf("node %s: too little of the granted %s is left: %s of %s is free, and pod %s/%s requests "+
		"%s", v.Name, name, short(left), short(granted), pod.Namespace, pod.Name, short(asked))
	var remedies []string
	if asked.Cmp(granted) <= 0 {
		remedies = append(remedies, "delete pods there")
	}
	if slice := v.Labels[api.LabelResourceSliceName]; slice != "" {
		total := Enough(granted, used[name], asked)
		remedies = append(remedies, fmt.Sprintf("ask for more: '%s create resourceslice %s -n %s "+
			"--remote-cluster-id %s --resource %s=%s'", s.Command, slice, v.Namespace, v.Spec.ClusterID, name,
			total.String()))
	}
	return problem + "; " + cmp.Or(strings.Join(remedies, ", or "), "request less")
}

// Enough returns how much to ask of a provider so that a request has room beside what pods use. Where it should have
// room in what is granted already, more is used than is known: then it is added to the grant.
func Enough(granted, used, asked resource.Quantity) resource.Quantity {
	total := used.DeepCopy()
	total.Add(asked)
	if total.Cmp(granted) <= 0 {
		total = granted.DeepCopy()
		total.Add(asked)
	}
	return total
}

// waitingPod is a pod without a node.
type waitingPod struct {
	*corev1.Pod
	demand corev1.ResourceList
	// short lists what the scheduler finds too little of, by name.
	short    []corev1.ResourceName
	selector labels.Selector
}

// waiting returns the pods that nodes have too little for, of namespaces that are offloaded.
func (s *Snapshot) waiting() []waitingPod {
	offloaded := map[string]bool{}
	for _, o := range s.Offloadings.Items {
		offloaded[o.Namespace] = o.Spec.PodOffloadingStrategy != offv1beta1.LocalStrategy
	}
	var out []waitingPod
	for i := range s.Pods.Items {
		pod := &s.Pods.Items[i]
		if pod.Spec.NodeName != "" || !offloaded[pod.Namespace] {
			continue
		}
		w := waitingPod{Pod: pod, demand: offloadingplan.Demand(&pod.Spec),
			selector: labels.SelectorFromSet(pod.Spec.NodeSelector)}
		for _, name := range slices.Sorted(maps.Keys(w.demand)) {
			if len(validation.IsQualifiedName(string(name))) > 0 {
				continue // no API server takes it, and a remedy would quote it
			}
			if slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodScheduled && strings.Contains(c.Message, "Insufficient "+string(name))
			}) {
				w.short = append(w.short, name)
			}
		}
		out = append(out, w)
	}
	return out
}

// Requested returns what pods on a node request.
func (s *Snapshot) Requested(node string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := range s.Pods.Items {
		if pod := &s.Pods.Items[i]; pod.Spec.NodeName == node && !api.Finished(pod.Status.Phase) {
			offloadingplan.Add(out, offloadingplan.Demand(&pod.Spec))
		}
	}
	return out
}

// selects reports whether the node selector and the affinity of a pod match a node.
func (pod waitingPod) selects(n *corev1.Node) bool {
	var required corev1.NodeSelector
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		required = ptr.Deref(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution, required)
	}
	return pod.selector.Matches(labels.Set(n.Labels)) &&
		offloadingplan.Selects(required.NodeSelectorTerms, n.Name, n.Labels)
}
