// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/liqo-go/liqo/api"
	offloadingv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// AdmitPod gives the pod as it must be to run where its namespace's offloading says. The pod
// itself is left as it is. A pod of the runtime class is not touched: the class brings selector
// and toleration with it. Nor is one of a DaemonSet, which belongs to the node it is made for; and
// one with a claim goes elsewhere only if it travels or must. A pod travels when all its claims are of
// a class whose volumes can be anywhere, or when it chooses virtual nodes itself.
//
//	strategy         selector   node affinity, in product with the pod's own terms
//	Local            any        none, and no toleration
//	Remote           none       type In virtual-node
//	Remote           terms      each term and type In virtual-node
//	LocalAndRemote   none       none
//	LocalAndRemote   terms      the terms, or type NotIn virtual-node
func AdmitPod(pod *corev1.Pod, offloading offloadingv1beta1.NamespaceOffloadingSpec, runtimeClass string,
	travels bool) *corev1.Pod {
	out := pod.DeepCopy()
	switch {
	case offloading.PodOffloadingStrategy == offloadingv1beta1.LocalStrategy,
		exempt(pod, runtimeClass),
		offloading.PodOffloadingStrategy != offloadingv1beta1.RemoteStrategy && Claims(&pod.Spec) && !travels:
		return out
	}
	if !tolerates(pod.Spec.Tolerations) {
		out.Spec.Tolerations = append(out.Spec.Tolerations, api.VirtualNodeToleration())
	}
	if terms := imposed(offloading); len(terms) > 0 {
		require(&out.Spec, terms)
	}
	if !equality.Semantic.DeepEqual(out.Spec, pod.Spec) {
		metav1.SetMetaDataAnnotation(&out.ObjectMeta, api.AnnotationAdmitted, admitted(offloading))
	}
	return out
}

// ReadmitPod gives a changed pod the toleration back that AdmitPod gave it, also if another one covers it. Kubernetes
// lets tolerations of a pod only be added, and a client that writes those of its manifest would be refused.
func ReadmitPod(pod, old *corev1.Pod) *corev1.Pod {
	out := pod.DeepCopy()
	for _, t := range old.Spec.Tolerations {
		kept := func(o corev1.Toleration) bool { return o.MatchToleration(&t) }
		if t.Key == api.VirtualNodeTaintKey && !slices.ContainsFunc(out.Spec.Tolerations, kept) {
			out.Spec.Tolerations = append(out.Spec.Tolerations, t)
		}
	}
	return out
}

// exempt reports whether a pod runs where it will, whatever its namespace says.
func exempt(pod *corev1.Pod, runtimeClass string) bool {
	owner := metav1.GetControllerOf(pod)
	return pod.Spec.RuntimeClassName != nil && *pod.Spec.RuntimeClassName == runtimeClass || owner != nil &&
		owner.Kind == "DaemonSet"
}

// Astray are the pods that run where the offloading of their namespace does not let new ones go:
// what runs is not moved. virtual are the Nodes of virtual nodes by name.
func Astray(pods []corev1.Pod, virtual map[string]corev1.Node, offloading offloadingv1beta1.NamespaceOffloadingSpec,
	runtimeClass string) []string {
	var names []string
	for i := range pods {
		pod := &pods[i]
		ends := pod.DeletionTimestamp != nil || api.Finished(pod.Status.Phase)
		if pod.Spec.NodeName == "" || ends || exempt(pod, runtimeClass) {
			continue
		}
		node, away := virtual[pod.Spec.NodeName]
		allowed := offloading.PodOffloadingStrategy != offloadingv1beta1.RemoteStrategy
		if away {
			allowed = offloading.PodOffloadingStrategy != offloadingv1beta1.LocalStrategy &&
				Selects(selectorTerms(offloading), node.Name, node.Labels)
		}
		if !allowed {
			names = append(names, pod.Name)
		}
	}
	return names
}

// admitted stands for what admission requires of the nodes of pods: "any", or a digest of the terms.
// Empty is nothing.
func admitted(offloading offloadingv1beta1.NamespaceOffloadingSpec) string {
	terms := imposed(offloading)
	switch {
	case offloading.PodOffloadingStrategy == offloadingv1beta1.LocalStrategy:
		return ""
	case len(terms) == 0:
		return anyNode
	}
	return hash(terms)
}

// anyNode is what admission requires when it only lets pods go to virtual nodes.
const anyNode = "any"

// Claims reports whether the pod has a volume that is claimed for it.
func Claims(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
	})
}

// ChoosesVirtualNodes reports whether a pod asks for virtual nodes: by the name of its node, by what only
// they have, or by what some of these nodes, which are all there are, have and none has that is not virtual.
func ChoosesVirtualNodes(spec *corev1.PodSpec, nodes []corev1.Node) bool {
	var terms []corev1.NodeSelectorTerm
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	met := func(name string, of labels.Set) bool {
		return (spec.NodeName == "" || spec.NodeName == name) &&
			labels.SelectorFromSet(spec.NodeSelector).Matches(of) && Selects(terms, name, of)
	}
	chosen := spec.NodeSelector[api.LabelType] == api.TypeVirtualNode ||
		spec.NodeSelector[api.LabelRemoteClusterID] != "" ||
		slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
			return slices.ContainsFunc(term.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
				return r.Operator == corev1.NodeSelectorOpIn &&
					(r.Key == api.LabelType && slices.Contains(r.Values, api.TypeVirtualNode) ||
						r.Key == api.LabelRemoteClusterID)
			})
		})
	for i := range nodes {
		switch n := &nodes[i]; {
		case !met(n.Name, n.Labels):
		case n.Labels[api.LabelType] != api.TypeVirtualNode:
			return false
		default:
			chosen = chosen || spec.NodeName != "" || len(spec.NodeSelector)+len(terms) > 0
		}
	}
	return chosen
}

// tolerates reports whether virtual nodes are tolerated for ever.
func tolerates(tolerations []corev1.Toleration) bool {
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		key := t.Key == api.VirtualNodeTaintKey || t.Key == "" && t.Operator == corev1.TolerationOpExists
		value := t.Operator == corev1.TolerationOpExists || t.Value == api.VirtualNodeTaintValue
		effect := t.Effect == "" || t.Effect == corev1.TaintEffectNoExecute
		return key && value && effect && t.TolerationSeconds == nil
	})
}

// imposed are the node selector terms a strategy asks for; nil means any node.
func imposed(offloading offloadingv1beta1.NamespaceOffloadingSpec) []corev1.NodeSelectorTerm {
	terms := selectorTerms(offloading)
	if offloading.PodOffloadingStrategy == offloadingv1beta1.RemoteStrategy {
		remote := nodeType(corev1.NodeSelectorOpIn)
		if len(terms) == 0 {
			return []corev1.NodeSelectorTerm{remote}
		}
		return product(terms, []corev1.NodeSelectorTerm{remote})
	}
	if len(terms) == 0 {
		return nil
	}
	return append(slices.Clone(terms), nodeType(corev1.NodeSelectorOpNotIn))
}

func nodeType(operator corev1.NodeSelectorOperator) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
		Key: api.LabelType, Operator: operator, Values: []string{api.TypeVirtualNode},
	}}}
}

// require joins terms with the pod's required node affinity, unless that has been done before.
func require(spec *corev1.PodSpec, terms []corev1.NodeSelectorTerm) {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	affinity := spec.Affinity.NodeAffinity
	own := affinity.RequiredDuringSchedulingIgnoredDuringExecution
	if own == nil || len(own.NodeSelectorTerms) == 0 {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
		return
	}
	if imposedAlready(own.NodeSelectorTerms, terms) {
		return
	}
	own.NodeSelectorTerms = product(own.NodeSelectorTerms, terms)
}

// imposedAlready reports whether every one of the pod's terms holds one of the imposed ones.
func imposedAlready(own, terms []corev1.NodeSelectorTerm) bool {
	holds := func(outer, inner []corev1.NodeSelectorRequirement) bool {
		return !slices.ContainsFunc(inner, func(r corev1.NodeSelectorRequirement) bool {
			return !slices.ContainsFunc(outer, func(o corev1.NodeSelectorRequirement) bool {
				return o.Key == r.Key && o.Operator == r.Operator && slices.Equal(o.Values, r.Values)
			})
		})
	}
	return !slices.ContainsFunc(own, func(o corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool {
			return holds(o.MatchExpressions, t.MatchExpressions) && holds(o.MatchFields, t.MatchFields)
		})
	})
}

// product is "one of a and one of b" written as alternatives.
func product(a, b []corev1.NodeSelectorTerm) []corev1.NodeSelectorTerm {
	var out []corev1.NodeSelectorTerm
	for _, x := range a {
		for _, y := range b {
			out = append(out, corev1.NodeSelectorTerm{
				MatchExpressions: slices.Concat(x.MatchExpressions, y.MatchExpressions),
				MatchFields:      slices.Concat(x.MatchFields, y.MatchFields),
			})
		}
	}
	return out
}
