// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// operators translates the operators of node selectors into those of label selectors.
var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn:           selection.In,
	corev1.NodeSelectorOpNotIn:        selection.NotIn,
	corev1.NodeSelectorOpExists:       selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt:           selection.GreaterThan,
	corev1.NodeSelectorOpLt:           selection.LessThan,
}

// Selects reports whether a cluster selector matches a node. Terms are alternatives, and without
// terms every node matches. As in the scheduler, a term without expressions matches none. Nor does
// an expression that the API would refuse.
func Selects(terms []corev1.NodeSelectorTerm, node string, nodeLabels map[string]string) bool {
	if len(terms) == 0 {
		return true
	}
	for _, term := range terms {
		if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
			continue
		}
		// Node selectors support only the field metadata.name.
		if all(term.MatchExpressions, nodeLabels) && all(term.MatchFields, map[string]string{"metadata.name": node}) {
			return true
		}
	}
	return false
}

func all(requirements []corev1.NodeSelectorRequirement, set labels.Set) bool {
	for _, r := range requirements {
		requirement, err := labels.NewRequirement(r.Key, operators[r.Operator], r.Values)
		if err != nil || !requirement.Matches(set) {
			return false
		}
	}
	return true
}

// OffloadFlags returns the flags of 'liqoctl offload namespace' that say the same as a spec, each with its
// value as a shell reads it. ok is false if flags cannot say the same of its cluster selector.
func OffloadFlags(spec offloadingv1beta1.NamespaceOffloadingSpec) (flags [][2]string, ok bool) {
	if s := spec.PodOffloadingStrategy; s != "" && s != offloadingv1beta1.LocalAndRemoteStrategy {
		flags = append(flags, [2]string{"--pod-offloading-strategy", string(s)})
	}
	if s := spec.NamespaceMappingStrategy; s != "" && s != offloadingv1beta1.DefaultNameMapping {
		flags = append(flags, [2]string{"--namespace-mapping-strategy", string(s)})
	}
	if spec.RemoteNamespaceName != "" {
		flags = append(flags, [2]string{"--remote-namespace-name", spec.RemoteNamespaceName})
	}
	for _, term := range selectorTerms(spec) {
		selector := labels.NewSelector()
		for _, r := range term.MatchExpressions {
			requirement, err := labels.NewRequirement(r.Key, operators[r.Operator], r.Values)
			if err != nil {
				return nil, false
			}
			selector = selector.Add(*requirement)
		}
		if selector.Empty() || len(term.MatchFields) > 0 {
			return nil, false
		}
		flags = append(flags, [2]string{"-l", "'" + selector.String() + "'"})
	}
	return flags, true
}

// selectorTerms returns the terms of a namespace's cluster selector; nil matches every virtual
// node.
func selectorTerms(spec offloadingv1beta1.NamespaceOffloadingSpec) []corev1.NodeSelectorTerm {
	if spec.ClusterSelector == nil {
		return nil
	}
	return spec.ClusterSelector.NodeSelectorTerms
}
