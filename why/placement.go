// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/offloading/plan"
	"github.com/liqo-go/liqo/view"
)

// Reasons of pods without a node.
const (
	// NotScheduled: no scheduler has looked at the pod.
	NotScheduled = "NotScheduled"
	// NotOffloaded: the namespace of the pod is not offloaded.
	NotOffloaded = "NotOffloaded"
	// StrategyLocal: the offloading of the namespace keeps pods in this cluster.
	StrategyLocal = "StrategyLocal"
	// CreatedBeforeOffloading: the pod was created before its namespace was offloaded as it is now.
	CreatedBeforeOffloading = "CreatedBeforeOffloading"
	// NoVirtualNode: there is no virtual node.
	NoVirtualNode = "NoVirtualNode"
	// SelectorMatchesNone: the cluster selector of the namespace matches no virtual node.
	SelectorMatchesNone = "SelectorMatchesNone"
	// PodSelectsNone: the node selector or affinity of the pod matches no virtual node that the
	// namespace is offloaded to.
	PodSelectsNone = "PodSelectsNone"
	// TaintNotTolerated: the pod does not tolerate a taint of the virtual node.
	TaintNotTolerated = "TaintNotTolerated"
	// TiedToThisCluster: admission has not let the pod run on virtual nodes.
	TiedToThisCluster = "TiedToThisCluster"
	// NodeTooSmall: the pod requests more than the virtual node has in all.
	NodeTooSmall = "NodeTooSmall"
	// NoPlace: the scheduler finds no node, and says why.
	NoPlace = "NoPlace"
)

// showNodes lists the virtual nodes with their labels.
const showNodes = "kubectl get nodes -l " + api.LabelType + "=" + api.TypeVirtualNode + " --show-labels"

// unplaced explains a pod that no node takes.
func (p *pod) unplaced() *Cause {
	if p.Spec.NodeName != "" || p.shadow != nil {
		return nil
	}
	scheduled := podCondition(p.Pod, corev1.PodScheduled)
	if scheduled == nil {
		return cause(NotScheduled, p.local, "no scheduler has looked at the pod; see whether %q runs",
			cmp.Or(p.Spec.SchedulerName, corev1.DefaultSchedulerName)).typed("kubectl -n kube-system get pods")
	}
	said := cmp.Or(scheduled.Message, scheduled.Reason)
	if found := p.notOffloaded(said); found != nil {
		return found
	}
	var blocked *Cause
	for _, node := range p.candidates() {
		found := p.keptFrom(node)
		if found == nil {
			blocked = nil
			break
		}
		blocked = cmp.Or(blocked, found)
	}
	if blocked != nil {
		return blocked
	}
	found := cause(NoPlace, p.local, "no node has a place: %s", said)
	for _, node := range p.candidates() {
		if p.keptFrom(node) == nil {
			p.askForMore(found, node.Name, p.demandIn(said, "Insufficient "))
			break
		}
	}
	return found.typed("kubectl -n %s describe pod %s", p.Namespace, p.Name)
}

// notOffloaded explains a pod that may not run on any virtual node. said is the message of the
// scheduler about all nodes.
func (p *pod) notOffloaded(said string) *Cause {
	o, nodes := p.local.offloading(p.Namespace), p.local.virtualNodes()
	if !p.local.mayRead("namespaceoffloadings") || !p.local.mayRead("nodes") {
		return nil
	}
	wants := plan.ChoosesVirtualNodes(&p.Spec, values(all[*corev1.Node](p.local)))
	switch {
	case len(nodes) == 0 && (o != nil || wants):
		return noVirtualNode(p.local, said)
	case len(nodes) == 0:
		return nil
	case o == nil && (!wants && ofSystem(p.Namespace) || !slices.ContainsFunc(nodes, p.selects)):
		return nil
	case o == nil:
		return cause(NotOffloaded, p.local, "no node of this cluster has a place, and namespace %s is "+
			"not offloaded: %s", p.Namespace, said).typed("liqoctl offload namespace %s", p.Namespace)
	case o.Spec.PodOffloadingStrategy == offv1beta1.LocalStrategy:
		changed := o.Spec
		changed.PodOffloadingStrategy = offv1beta1.LocalAndRemoteStrategy
		return cause(StrategyLocal, p.local, "no node of this cluster has a place, and the offloading of namespace %s "+
			"has the strategy Local: %s", p.Namespace, said).offload(p.Namespace, changed)
	case p.createdBefore(o):
		return cause(CreatedBeforeOffloading, p.local, "the pod was created before its namespace was offloaded as it "+
			"is now, and its affinity cannot be changed; delete it and create it again").
			typed("kubectl -n %s delete pod %s", p.Namespace, p.Name)
	case len(p.selected()) == 0:
		return cause(SelectorMatchesNone, p.local, "the cluster selector of namespace %s matches no virtual node; "+
			"label one, or offload to all: %s", p.Namespace, said).offloadToAll(o)
	case len(p.candidates()) == 0:
		return cause(PodSelectsNone, p.local, "the node selector or affinity of the pod matches no virtual node that "+
			"namespace %s is offloaded to: %s", p.Namespace, said).
			typed(showNodes).typed("kubectl -n %s get pod %s -o yaml", p.Namespace, p.Name)
	}
	return nil
}

// ofSystem reports whether a namespace belongs to Kubernetes or to Liqo, and is not for offloading.
func ofSystem(namespace string) bool {
	return strings.HasPrefix(namespace, "kube-") || namespace == api.Namespace || namespace == api.StorageNamespace ||
		strings.HasPrefix(namespace, api.TenantNamespacePrefix)
}

// createdBefore reports whether Liqo reports the pod as created before the offloading. It decides
// with the code of the controller, for pods without claims: what claims allow is not known here.
func (p *pod) createdBefore(o *offv1beta1.NamespaceOffloading) bool {
	if plan.Claims(&p.Spec) {
		return strings.HasPrefix(p.local.warning("Pod", p.Namespace, p.Name), CreatedBeforeOffloading)
	}
	verdict := plan.EarlierPod(plan.EarlierPodInput{Root: p.Pod, Offloading: o, RuntimeClass: api.RuntimeClassName,
		Now: p.CreationTimestamp.Add(time.Hour)}) // a pod that is old enough to be decided about
	return verdict.Reason == CreatedBeforeOffloading
}

// selected returns the virtual nodes that the namespace is offloaded to.
func (p *pod) selected() (out []*corev1.Node) {
	o := p.local.offloading(p.Namespace)
	if o == nil {
		return nil
	}
	for _, node := range p.local.virtualNodes() {
		if o.Spec.ClusterSelector == nil ||
			plan.Selects(o.Spec.ClusterSelector.NodeSelectorTerms, node.Name, node.Labels) {
			out = append(out, node)
		}
	}
	return out
}

// candidates returns the virtual nodes that the pod selects of those its namespace is offloaded to.
func (p *pod) candidates() []*corev1.Node {
	return slices.DeleteFunc(p.selected(), func(n *corev1.Node) bool { return !p.selects(n) })
}

// selects reports whether the node selector and the affinity of the pod match a node.
func (p *pod) selects(n *corev1.Node) bool {
	var terms []corev1.NodeSelectorTerm
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms = a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	return labels.SelectorFromSet(p.Spec.NodeSelector).Matches(labels.Set(n.Labels)) &&
		plan.Selects(terms, n.Name, n.Labels)
}

// keptFrom returns what keeps the pod from a virtual node; nil = nothing but the space left.
func (p *pod) keptFrom(node *corev1.Node) *Cause {
	if found := nodeCause(p.in, node.Name); found != nil {
		return found
	}
	if node.Spec.Unschedulable {
		return cordoned(p.local, node.Name)
	}
	if found := p.untolerated(node); found != nil {
		return found
	}
	demand, missing := plan.Demand(&p.Spec), corev1.ResourceList{}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(demand)) {
		has, known := node.Status.Allocatable[name]
		if asked := demand[name]; asked.Cmp(has) > 0 && (known || name != corev1.ResourcePods) {
			missing[name] = asked
			texts = append(texts, fmt.Sprintf("%s of %s", asked.String(), name))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	found := cause(NodeTooSmall, p.local, "the pod requests %s, more than node %s has", strings.Join(texts, " and "),
		node.Name)
	p.askForMore(found, node.Name, missing)
	return found.typed("kubectl describe node %s", node.Name)
}

// untolerated explains a pod that does not tolerate a taint of a virtual node. Admission adds the
// toleration of Liqo's own taint.
func (p *pod) untolerated(node *corev1.Node) *Cause {
	for _, taint := range node.Spec.Taints {
		covers := func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Logger{}, &taint, false) }
		switch {
		case taint.Effect == corev1.TaintEffectPreferNoSchedule || slices.ContainsFunc(p.Spec.Tolerations, covers):
		case taint.Key != api.VirtualNodeTaintKey:
			return p.needsToleration(node, taint)
		case plan.Claims(&p.Spec):
			return cause(TiedToThisCluster, p.local, "the claims of the pod tie it to this cluster; those of class "+
				"%s do not", api.StorageClassName).typed("kubectl -n %s get persistentvolumeclaims", p.Namespace)
		default:
			return cause(TiedToThisCluster, p.local, "admission has not let the pod run on virtual nodes; see whether "+
				"webhook %s answers, then create the pod again", api.WebhookName).
				typed("kubectl get mutatingwebhookconfigurations %s -o yaml", api.WebhookName).
				typed("kubectl -n %s get pod %s -o yaml", p.Namespace, p.Name)
		}
	}
	return nil
}

// needsToleration explains a pod without the toleration for a taint. Without the taint, the node would be open to
// all pods, and one that its VirtualNode lists comes back.
func (p *pod) needsToleration(node *corev1.Node, taint corev1.Taint) *Cause {
	found := cause(TaintNotTolerated, p.local, "node %s has the taint %s, which the pod does not tolerate; add a "+
		"toleration to the pod if it may run there", node.Name, taint.ToString()).
		typed("kubectl -n %s edit pod %s", p.Namespace, p.Name)
	if v := p.local.virtualNode(node.Name); v != nil && slices.ContainsFunc(v.Spec.Taints, func(t corev1.Taint) bool {
		return t.MatchTaint(&taint)
	}) {
		return found.typed("kubectl -n %s get virtualnode %s -o yaml", v.Namespace, v.Name)
	}
	return found.typed("kubectl describe node %s", node.Name)
}

// askForMore adds the command that asks the provider of a virtual node for as much more as the pod
// requests of some resources.
func (p *pod) askForMore(found *Cause, node string, demand corev1.ResourceList) {
	v := p.local.virtualNode(node)
	slice := p.local.slice(v)
	if slice == nil {
		return
	}
	if flags, args := p.amounts(slice, node, demand); flags != "" {
		found.typedAt(p.local.ID, "liqoctl create resourceslice %s -n %s --remote-cluster-id %s"+flags,
			append([]any{slice.Name, slice.Namespace, v.Spec.ClusterID}, args...)...)
	}
}

// amounts returns the flags that ask for enough on a virtual node for demand of the pod, as a format and its arguments.
func (p *pod) amounts(slice *authv1beta1.ResourceSlice, node string, demand corev1.ResourceList,
) (flags string, args []any) {
	for _, name := range slices.Sorted(maps.Keys(demand)) {
		granted, ok := slice.Status.Resources[name]
		if !ok {
			granted = slice.Spec.Resources[name]
		}
		used := p.local.Used[node][name].DeepCopy()
		switch {
		case p.local.Used == nil: // all may be used
			used = granted
		case p.Spec.NodeName == node: // the pod is a part of it
			used.Sub(demand[name])
		}
		total := view.Enough(granted, used, demand[name])
		switch {
		case total.IsZero() || granted.IsZero() && name == corev1.ResourcePods:
			continue
		case name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourcePods:
			flags += " --%s %s"
		default:
			flags += " --resource %s=%s"
		}
		args = append(args, name, total.String())
	}
	return flags, args
}

// demandIn returns the requests of the pod for the resources that a message names after a word.
func (p *pod) demandIn(message, word string) corev1.ResourceList {
	demand := plan.Demand(&p.Spec)
	maps.DeleteFunc(demand, func(name corev1.ResourceName, _ resource.Quantity) bool {
		return !strings.Contains(message, word+string(name))
	})
	return demand
}

// offload adds the command that offloads a namespace as the spec says, or the one that edits its
// offloading, if liqoctl cannot say the same.
func (c *Cause) offload(namespace string, spec offv1beta1.NamespaceOffloadingSpec) *Cause {
	format, args := "liqoctl offload namespace %s", []any{namespace}
	flags, ok := plan.OffloadFlags(spec)
	for _, flag := range flags {
		format, args = format+" "+flag[0]+" %s", append(args, flag[1])
	}
	if before := len(c.Remedies); ok && len(c.typed(format, args...).Remedies) > before {
		return c
	}
	return c.typed("kubectl -n %s edit namespaceoffloading %s", namespace, api.NamespaceOffloadingName)
}

// offloadToAll adds the commands by which a namespace gets to a virtual node that its cluster selector
// does not match.
func (c *Cause) offloadToAll(o *offv1beta1.NamespaceOffloading) *Cause {
	changed := o.Spec
	changed.ClusterSelector = nil
	return c.typed(showNodes).offload(o.Namespace, changed)
}

// values returns the objects of pointers.
func values[T any](all []*T) (out []T) {
	for _, o := range all {
		out = append(out, *o)
	}
	return out
}
