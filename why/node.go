// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/liqo-go/liqo/api"
	authv1beta1 "github.com/liqo-go/liqo/api/authentication/v1beta1"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// Reasons of nodes.
const (
	// NodeMissing: the node does not exist, or not any more.
	NodeMissing = "NodeMissing"
	// Draining: the virtual node is being deleted.
	Draining = "Draining"
	// ProviderUnreachable: the API server of the provider does not answer.
	ProviderUnreachable = "ProviderUnreachable"
	// SliceNotGranted: the provider has not granted the resources of the virtual node.
	SliceNotGranted = "SliceNotGranted"
	// SliceCordoned: the provider takes nothing new for the virtual node.
	SliceCordoned = "SliceCordoned"
	// VirtualKubeletDown: the process behind the virtual node does not run.
	VirtualKubeletDown = "VirtualKubeletDown"
	// TunnelDown: there is no tunnel to the provider.
	TunnelDown = "TunnelDown"
	// NodeNotReady: the node is not ready for another reason.
	NodeNotReady = "NodeNotReady"
	// NodeCordoned: an administrator has cordoned the node.
	NodeCordoned = "NodeCordoned"
)

// explainNode explains a Node, virtual or not, or a virtual node that only reflects.
func explainNode(in *Input) Answer {
	c := &in.Local
	node, virtual := named[*corev1.Node](c, "", in.Name), c.virtualNode(in.Name)
	a := Answer{State: "Ready", Where: "this cluster"}
	switch {
	case node == nil && virtual == nil:
		a.State, a.Where = absent, "nowhere"
	case node == nil && !ptr.Deref(virtual.Spec.CreateNode, true):
		a.State = "without a Node: it only reflects objects"
	case node == nil || !api.NodeReady(node):
		a.State = "NotReady"
	}
	if virtual != nil {
		a.Where = fmt.Sprintf("virtual node for provider %s, in namespace %s", virtual.Spec.ClusterID,
			virtual.Namespace)
		a.Decisions = append(sliceDecisions(c.slice(virtual)), kubeletDecisions(virtual)...)
	}
	found := nodeCause(in, in.Name)
	if found == nil && node != nil && node.Spec.Unschedulable {
		found = cordoned(c, in.Name)
	}
	if found == nil {
		found = sliceCordoned(c, c.slice(virtual))
	}
	if found == nil {
		found = cause(Nothing, c, "the node takes pods that tolerate its taints")
		if virtual != nil {
			found.Message = "pods of namespaces that are offloaded to " + virtual.Spec.ClusterID + " may run on it"
		}
	}
	a.Cause = *found
	return a
}

func cordoned(c *Cluster, node string) *Cause {
	return cause(NodeCordoned, c, "node %s is cordoned, so that it gets no new pods", node).
		typed("kubectl uncordon %s", node)
}

// sliceCordoned returns a cause if the provider of a slice takes no new pods; nil if it does, or
// there is no slice.
func sliceCordoned(c *Cluster, slice *authv1beta1.ResourceSlice) *Cause {
	if slice == nil {
		return nil
	}
	for _, condition := range slice.Status.Conditions {
		if condition.Reason == authv1beta1.ReasonSliceCordoned {
			provider := slice.Labels[api.LabelRemoteClusterID]
			return cause(SliceCordoned, c, "%s takes nothing new for ResourceSlice %s: %s", provider, slice.Name,
				condition.Message).typed("liqoctl info peer %s", provider).
				typedAt(provider, "liqoctl info peer %s", c.ID) // names the command that undoes it
		}
	}
	return nil
}

// sliceDecisions returns what a provider has answered about a slice.
func sliceDecisions(slice *authv1beta1.ResourceSlice) (out []string) {
	if slice == nil {
		return nil
	}
	for _, c := range slice.Status.Conditions {
		if c.Type == authv1beta1.ResourceSliceAuthentication || c.Type == authv1beta1.ResourceSliceResources {
			out = append(out, fmt.Sprintf("the provider about ResourceSlice %s: %s %s", slice.Name, c.Type, c.Status))
		}
	}
	return out
}

// kubeletDecisions returns the states of the parts of a virtual node.
func kubeletDecisions(v *offv1beta1.VirtualNode) (out []string) {
	for _, c := range v.Status.Conditions {
		if c.Type == offv1beta1.VirtualKubeletCondition || c.Type == offv1beta1.NodeCondition {
			out = append(out, fmt.Sprintf("the controller about its %s: %s", c.Type, c.Status))
		}
	}
	return out
}

// nodeCause returns what keeps pods of a node from starting there; nil = nothing. A cordoned node
// has no such cause, since pods that are on it start.
func nodeCause(in *Input, name string) *Cause {
	c := &in.Local
	node, virtual := named[*corev1.Node](c, "", name), c.virtualNode(name)
	switch {
	case virtual != nil:
		if found := virtualNodeCause(in, virtual); found != nil {
			return found
		}
	case node == nil && (!c.mayRead("nodes") || !c.mayRead("virtualnodes")):
		return nil
	case node == nil:
		return cause(NodeMissing, c, "node %s does not exist", name).typed("kubectl get nodes")
	}
	switch {
	case node != nil && api.NodeReady(node):
		return nil
	case node == nil && (!ptr.Deref(virtual.Spec.CreateNode, true) || !c.mayRead("nodes")):
		return nil
	case node == nil:
		return cause(NodeMissing, c, "virtual node %s has no Node: %s", name,
			cmp.Or(virtualNodeMessage(virtual), "it is being made")).
			typed("kubectl -n %s describe virtualnode %s", virtual.Namespace, name)
	}
	if provider := node.Labels[api.LabelRemoteClusterID]; provider != "" {
		if problem := tunnelOf(in, provider); problem != "" {
			return cause(TunnelDown, c, "there is no tunnel to %s: %s", provider, problem).
				typed("liqoctl info peer %s", provider).typedAt(provider, "liqoctl info peer %s", in.Local.ID)
		}
	}
	message := "node " + name + " is not ready"
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Message != "" {
			message += ": " + condition.Message
		}
	}
	found := cause(NodeNotReady, c, "%s", message)
	if virtual != nil {
		found.typed("liqoctl info peer %s", virtual.Spec.ClusterID)
	}
	return found.typed("kubectl describe node %s", name)
}

// tunnelOf returns what both ends of the tunnel to a peer report; empty if it works.
func tunnelOf(in *Input, peer string) string {
	problem := in.Local.tunnelProblem(peer)
	if remote := in.at(peer); remote != nil {
		if theirs := remote.tunnelProblem(in.Local.ID); theirs != "" {
			problem = strings.TrimPrefix(problem+"; "+peer+" says: "+theirs, "; ")
		}
	}
	return problem
}

// at returns the other cluster, if it is the one with this ID; else nil.
func (in *Input) at(id string) *Cluster {
	if in.Remote != nil && in.Remote.ID == id {
		return in.Remote
	}
	return nil
}

// virtualNodeCause returns what keeps a virtual node from running pods; nil = nothing.
func virtualNodeCause(in *Input, v *offv1beta1.VirtualNode) *Cause {
	c, provider := &in.Local, v.Spec.ClusterID
	if v.DeletionTimestamp != nil {
		return cause(Draining, c, "virtual node %s is being deleted: %s", v.Name,
			cmp.Or(virtualNodeMessage(v), "its pods end at the provider first")).
			typed("kubectl -n %s describe virtualnode %s", v.Namespace, v.Name)
	}
	if problem := unreachable(c.peer(provider)); problem != "" {
		return cause(ProviderUnreachable, c, "the API server of %s does not answer: %s", provider, problem).
			typed("liqoctl info peer %s", provider)
	}
	if problem := sliceProblem(c.slice(v)); problem != "" {
		return cause(SliceNotGranted, c, "%s does not grant the resources of ResourceSlice %s: %s", provider,
			v.Labels[api.LabelResourceSliceName], problem).
			typed("liqoctl info peer %s", provider).typedAt(provider, "liqoctl info peer %s", c.ID)
	}
	for _, condition := range v.Status.Conditions {
		if condition.Type == offv1beta1.VirtualKubeletCondition && condition.Status != offv1beta1.VirtualNodeRunning {
			deployment := api.VirtualKubeletName(v.Name)
			return cause(VirtualKubeletDown, c, "the virtual kubelet of node %s is %s: %s", v.Name, condition.Status,
				cmp.Or(c.kubeletProblem(v), condition.Message, virtualNodeMessage(v), "it does not run yet")).
				typed("kubectl -n %s describe deployment %s", v.Namespace, deployment).
				typed("kubectl -n %s logs deployment/%s", v.Namespace, deployment)
		}
	}
	return nil
}

// kubeletProblem returns why the pod of a virtual kubelet does not run; empty if its pods do not say.
func (c *Cluster) kubeletProblem(v *offv1beta1.VirtualNode) string {
	for _, p := range all[*corev1.Pod](c) {
		if p.Namespace != v.Namespace || p.Labels[api.LabelVirtualNode] != v.Name {
			continue
		}
		for _, s := range statuses(p) {
			if waiting := s.State.Waiting; waiting != nil && waiting.Message != "" {
				return fmt.Sprintf("container %s: %s: %s", s.Name, waiting.Reason, waiting.Message)
			}
		}
		if s := podCondition(p, corev1.PodScheduled); s != nil && s.Status == corev1.ConditionFalse {
			return "no node takes its pod: " + s.Message
		}
	}
	return ""
}

// virtualNodeMessage returns the message of the standard condition Ready, if it is not true.
func virtualNodeMessage(v *offv1beta1.VirtualNode) string {
	for _, c := range v.Status.Conditions {
		if c.Type == "Ready" && c.Status != "True" {
			return c.Message
		}
	}
	return ""
}

// unreachable returns why the API server of a peer does not answer; empty if it does, or is not
// probed.
func unreachable(f *corev1beta1.ForeignCluster) string {
	if f == nil {
		return ""
	}
	for _, c := range f.Status.Conditions {
		if c.Type == corev1beta1.APIServerStatusCondition && c.Status == corev1beta1.ConditionError {
			return cmp.Or(c.Message, c.Reason, string(c.Status))
		}
	}
	return ""
}

// sliceProblem returns why the provider has not granted a slice; empty if it has, or there is none.
func sliceProblem(slice *authv1beta1.ResourceSlice) string {
	if slice == nil {
		return ""
	}
	accepted, waits := 0, "it has not answered yet"
	for _, c := range slice.Status.Conditions {
		switch {
		case c.Status == authv1beta1.ResourceSliceDenied:
			return cmp.Or(c.Message, c.Reason, "denied")
		case c.Status == authv1beta1.ResourceSliceAccepted:
			accepted++
		case c.Type == "Ready" && c.Status == authv1beta1.ResourceSliceFalse && c.Message != "":
			waits = c.Message
		}
	}
	if accepted == 2 { // the answers about credentials and about resources
		return ""
	}
	return waits
}
