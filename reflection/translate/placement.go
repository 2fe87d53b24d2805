// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// namePlacement appends to the message of a pod that the provider's scheduler has no node for which
// terms its ShadowPod requires of a node, and where each comes from. The home pod shows other
// terms.
func namePlacement(remote []corev1.PodCondition, shadow *offv1beta1.ShadowPod, node string) {
	scheduled := condition(remote, corev1.PodScheduled)
	if shadow == nil || scheduled == nil || scheduled.Reason != corev1.PodReasonUnschedulable {
		return
	}
	if terms := placement(&shadow.Spec.Pod, node); len(terms) > 0 {
		scheduled.Message = cut(scheduled.Message + " Required of the provider's nodes: " +
			strings.Join(terms, "; ") + ".")
	}
}

// placement returns the terms that a remote pod requires of its node. TrimShadowPod keeps the
// fields.
func placement(pod *corev1.PodSpec, node string) []string {
	var out []string
	patch := fmt.Sprintf(" (offloadingPatch of VirtualNode %q)", node)
	if len(pod.NodeSelector) > 0 {
		out = append(out, "nodeSelector "+labels.FormatLabels(pod.NodeSelector)+patch)
	}
	if a := pod.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		var terms []string
		for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			var all []string
			for _, r := range slices.Concat(term.MatchExpressions, term.MatchFields) {
				all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Key, r.Operator,
					strings.Join(r.Values, ","))))
			}
			terms = append(terms, strings.Join(all, " and "))
		}
		out = append(out, "nodeAffinity "+strings.Join(terms, " or ")+patch)
	}
	if a := pod.Affinity; a != nil && a.PodAntiAffinity != nil {
		for _, term := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			out = append(out, fmt.Sprintf("podAntiAffinity over %s to %s (annotation %s)",
				term.TopologyKey, metav1.FormatLabelSelector(term.LabelSelector), api.AnnotationAntiAffinityPreset))
		}
	}
	for _, c := range pod.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			out = append(out, fmt.Sprintf("topologySpreadConstraints over %s of %s (the pod's own)",
				c.TopologyKey, metav1.FormatLabelSelector(c.LabelSelector)))
		}
	}
	return out
}
