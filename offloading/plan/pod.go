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

// AdmitPod returns a copy of the pod that may run where the offloading of its namespace allows. It
// does not change pods of the runtime class, which brings selector and toleration with it, or of
// DaemonSets, which belong to one node. A pod with claims may leave this cluster only if
// claimsAllow is set or the strategy is Remote; KeepHome holds it back otherwise.
//
//	strategy         selector   node affinity, in product with the pod's own terms
//	Local            any        none, and no toleration
//	Remote           none       type In virtual-node
//	Remote           terms      each term and type In virtual-node
//	LocalAndRemote   none       none
//	LocalAndRemote   terms      the terms, or type NotIn virtual-node
func AdmitPod(pod *corev1.Pod, offloading offloadingv1beta1.NamespaceOffloadingSpec, runtimeClass string,
	claimsAllow bool) *corev1.Pod {
	out := pod.DeepCopy()
	switch {
	case exempt(pod, runtimeClass):
		return out
	case staysHome(pod, offloading, claimsAllow):
		return KeepHome(pod, runtimeClass)
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

// staysHome reports whether an offloading keeps a pod off virtual nodes.
func staysHome(pod *corev1.Pod, offloading offloadingv1beta1.NamespaceOffloadingSpec, claimsAllow bool) bool {
	strategy := offloading.PodOffloadingStrategy
	return strategy == offloadingv1beta1.LocalStrategy ||
		strategy != offloadingv1beta1.RemoteStrategy && Claims(&pod.Spec) && !claimsAllow
}

// KeepHome returns a copy of a pod that must not leave this cluster. A pod that tolerates all taints, and does not
// name that of virtual nodes, gets a node affinity against these. Other pods do not tolerate the taint, or
// ask for virtual nodes. A policy of the chart does the same where the API server has such policies. It
// does not change pods of DaemonSets, and pods that have a node already, like static ones.
func KeepHome(pod *corev1.Pod, runtimeClass string) *corev1.Pod {
	out := pod.DeepCopy()
	if pod.Spec.NodeName != "" || exempt(pod, runtimeClass) || !toleratesAll(&pod.Spec) {
		return out
	}
	require(&out.Spec, []corev1.NodeSelectorTerm{nodeType(corev1.NodeSelectorOpNotIn)})
	metav1.SetMetaDataAnnotation(&out.ObjectMeta, api.AnnotationAdmitted, noVirtualNode)
	return out
}

// ReadmitPod returns an updated pod with the toleration that AdmitPod added, even if another
// toleration covers it. Kubernetes allows only to add tolerations to a pod, so it would refuse a
// client that applies its manifest again.
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

// exempt reports whether the offloading of its namespace does not concern a pod.
func exempt(pod *corev1.Pod, runtimeClass string) bool {
	owner := metav1.GetControllerOf(pod)
	return pod.Spec.RuntimeClassName != nil && *pod.Spec.RuntimeClassName == runtimeClass || owner != nil &&
		owner.Kind == "DaemonSet"
}

// Misplaced returns the names of the pods that run where the offloading of their namespace does not
// allow new ones: running pods are not moved. virtual holds the Nodes of virtual nodes by name.
func Misplaced(pods []corev1.Pod, virtual map[string]corev1.Node, offloading offloadingv1beta1.NamespaceOffloadingSpec,
	runtimeClass string) []string {
	var names []string
	for i := range pods {
		pod := &pods[i]
		ends := pod.DeletionTimestamp != nil || api.Finished(pod.Status.Phase)
		if pod.Spec.NodeName == "" || ends || exempt(pod, runtimeClass) {
			continue
		}
		node, isVirtual := virtual[pod.Spec.NodeName]
		allowed := offloading.PodOffloadingStrategy != offloadingv1beta1.RemoteStrategy
		if isVirtual {
			allowed = offloading.PodOffloadingStrategy != offloadingv1beta1.LocalStrategy &&
				Selects(selectorTerms(offloading), node.Name, node.Labels)
		}
		if !allowed {
			names = append(names, pod.Name)
		}
	}
	return names
}

// admitted returns the value of AnnotationAdmitted: anyNode, or a digest of the required node
// selector terms. It is empty if admission changes no pod.
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

const (
	// anyNode stands for pods that admission allows on virtual nodes without requiring any node.
	anyNode = "any"
	// noVirtualNode stands for pods that KeepHome changed. The policy of the chart writes it, too.
	noVirtualNode = "none"
)

// Claims reports whether the pod uses a PersistentVolumeClaim.
func Claims(spec *corev1.PodSpec) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
	})
}

// ChoosesVirtualNodes reports whether a pod selects virtual nodes: by the name of its node, by
// labels that only they can have, or by labels that match only virtual ones among nodes, which are
// all nodes of the cluster.
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

// tolerates reports whether the taint of virtual nodes is tolerated without a time limit.
func tolerates(tolerations []corev1.Toleration) bool {
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		key := t.Key == api.VirtualNodeTaintKey || t.Key == "" && t.Operator == corev1.TolerationOpExists
		value := t.Operator == corev1.TolerationOpExists || t.Value == api.VirtualNodeTaintValue
		effect := t.Effect == "" || t.Effect == corev1.TaintEffectNoExecute
		return key && value && effect && t.TolerationSeconds == nil
	})
}

// toleratesAll reports whether a pod tolerates the taint of virtual nodes because it tolerates all taints, be it for
// a time, and neither names the taint nor selects virtual nodes.
func toleratesAll(spec *corev1.PodSpec) bool {
	_, selects := spec.NodeSelector[api.LabelType]
	named := func(t corev1.Toleration) bool { return t.Key == api.VirtualNodeTaintKey }
	return !selects && !slices.ContainsFunc(spec.Tolerations, named) &&
		slices.ContainsFunc(spec.Tolerations, func(t corev1.Toleration) bool {
			t.TolerationSeconds = nil // schedulers do not look at it
			return tolerates([]corev1.Toleration{t})
		})
}

// imposed returns the node selector terms that an offloading requires; nil = any node.
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

// require adds alternative terms to the pod's required node affinity, unless they were added
// before.
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

// imposedAlready reports whether each of the pod's terms contains one of the imposed terms.
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

// product returns the alternatives that require one of a and one of b.
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
