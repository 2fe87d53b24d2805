// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
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
		free, reported := s.free(v), map[corev1.ResourceName]bool{}
		for _, pod := range waiting {
			for _, name := range pod.short {
				asked := pod.demand[name]
				left, granted := free[name]
				if granted && !reported[name] && asked.Cmp(left) > 0 && pod.selects(&s.Nodes.Items[at]) {
					reported[name] = true
					out[v.Spec.ClusterID] = append(out[v.Spec.ClusterID], s.shortage(v, pod, name, left))
				}
			}
		}
	}
	return out
}

// shortage says that a pod requests more of a resource than is left of what was granted.
func (s *Snapshot) shortage(v *offv1beta1.VirtualNode, pod waitingPod, name corev1.ResourceName,
	left resource.Quantity) string {
	granted, asked := v.Spec.ResourceQuota.Hard[name].DeepCopy(), pod.demand[name]
	if left.Sign() < 0 { // pods may be older than what is granted now
		left = resource.Quantity{Format: granted.Format}
	}
	problem := fmt.Sprintf("node %s: too little of the granted %s is left: %s of %s is free, and pod %s/%s requests "+
		"%s; delete pods there", v.Name, name, short(left), short(granted), pod.Namespace, pod.Name, short(asked))
	slice := v.Labels[api.LabelResourceSliceName]
	if slice == "" {
		return problem
	}
	granted.Add(asked)
	return problem + fmt.Sprintf(", or ask for more: '%s create resourceslice %s -n %s --remote-cluster-id %s "+
		"--resource %s=%s'", s.Command, slice, v.Namespace, v.Spec.ClusterID, name, granted.String())
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

// free returns what is granted for a virtual node and not requested by pods on it; negative if they
// request more.
func (s *Snapshot) free(v *offv1beta1.VirtualNode) corev1.ResourceList {
	out := v.Spec.ResourceQuota.Hard.DeepCopy()
	for i := range s.Pods.Items {
		if pod := &s.Pods.Items[i]; pod.Spec.NodeName == v.Name && !api.Finished(pod.Status.Phase) {
			for name, used := range offloadingplan.Demand(&pod.Spec) {
				if left, granted := out[name]; granted {
					left.Sub(used)
					out[name] = left
				}
			}
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
