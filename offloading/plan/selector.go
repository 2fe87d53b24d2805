// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// operator translates a node selector's operator into the label package's.
func operator(o corev1.NodeSelectorOperator) selection.Operator {
	switch o {
	case corev1.NodeSelectorOpIn:
		return selection.In
	case corev1.NodeSelectorOpNotIn:
		return selection.NotIn
	case corev1.NodeSelectorOpExists:
		return selection.Exists
	case corev1.NodeSelectorOpDoesNotExist:
		return selection.DoesNotExist
	case corev1.NodeSelectorOpGt:
		return selection.GreaterThan
	case corev1.NodeSelectorOpLt:
		return selection.LessThan
	}
	return selection.Operator(o)
}

// Selects reports whether a cluster selector picks the node. Without terms every node is picked;
// otherwise terms are alternatives, and a term without expressions picks none, as the scheduler
// has it. An expression the API would refuse picks none.
func Selects(terms []corev1.NodeSelectorTerm, node string, nodeLabels map[string]string) bool {
	if len(terms) == 0 {
		return true
	}
	for _, term := range terms {
		if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
			continue
		}
		// The only field a node selector knows is metadata.name.
		if all(term.MatchExpressions, nodeLabels) && all(term.MatchFields, map[string]string{"metadata.name": node}) {
			return true
		}
	}
	return false
}

func all(requirements []corev1.NodeSelectorRequirement, set labels.Set) bool {
	for _, r := range requirements {
		requirement, err := labels.NewRequirement(r.Key, operator(r.Operator), r.Values)
		if err != nil || !requirement.Matches(set) {
			return false
		}
	}
	return true
}

// selectorTerms are the terms of a namespace's cluster selector; nil picks every virtual node.
func selectorTerms(spec offloadingv1beta1.NamespaceOffloadingSpec) []corev1.NodeSelectorTerm {
	if spec.ClusterSelector == nil {
		return nil
	}
	return spec.ClusterSelector.NodeSelectorTerms
}
