// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
	"github.com/liqo-go/liqo/offloading/plan"
	"github.com/liqo-go/liqo/reflection/translate"
)

// Reasons of pods.
const (
	// PodMissing: the pod does not exist.
	PodMissing = "PodMissing"
	// PodFailed: the pod has failed, and does not start again by itself.
	PodFailed = "PodFailed"
	// OffloadingAborted: the namespace is not offloaded any more to the cluster that ran the pod.
	OffloadingAborted = "OffloadingAborted"
	// Terminating: the pod is being deleted.
	Terminating = "Terminating"
	// SchedulingGated: a scheduling gate keeps the pod from the scheduler.
	SchedulingGated = "SchedulingGated"
	// ClaimMissing: a claim of the pod does not exist.
	ClaimMissing = "ClaimMissing"
	// ClaimPending: a claim of the pod gets no volume.
	ClaimPending = "ClaimPending"
	// NotReady: the containers run, and the pod is not ready.
	NotReady = "NotReady"
	// Unexplained: nothing that could be read names a cause.
	Unexplained = "Unexplained"
)

// pod is a pod with what decides about it.
type pod struct {
	*corev1.Pod
	in *Input
	// local is the cluster of the pod.
	local *Cluster
	// provider is the cluster of the pod's virtual node; empty for a pod without one.
	provider string
	// mapping is the NamespaceMap for the provider; nil if there is none, or it may not be read.
	mapping *offv1beta1.NamespaceMap
	// remoteNamespace is the namespace of the remote pod; empty if it is not known.
	remoteNamespace string
	// there is the cluster with the ShadowPod; nil without access to it. At the provider, that is
	// the local cluster.
	there *Cluster
	// shadow and remote are the ShadowPod and the pod made from it; nil if they do not exist.
	shadow *offv1beta1.ShadowPod
	remote *corev1.Pod
}

// podChecks look for the cause in the order in which a pod gets to its provider.
var podChecks = []func(*pod) *Cause{
	(*pod).works, (*pod).failed, (*pod).terminating, (*pod).gated, (*pod).claims, (*pod).unplaced, (*pod).onNode,
	(*pod).notMapped, (*pod).unknownVolume, (*pod).notCreated, (*pod).remotePlace, (*pod).containers, (*pod).tunnelDown,
}

// explainPod explains a pod, of this cluster or made for a consumer.
func explainPod(in *Input) Answer {
	found := named[*corev1.Pod](&in.Local, in.Namespace, in.Name)
	shadow := named[*offv1beta1.ShadowPod](&in.Local, in.Namespace, in.Name)
	if found == nil && shadow == nil {
		return Answer{State: absent, Where: "nowhere", Cause: *cause(PodMissing, &in.Local,
			"pod %s does not exist", at(in.Namespace, in.Name)).typed("kubectl -n %s get pods", in.Namespace)}
	}
	p := newPod(in, found, shadow)
	a := Answer{State: p.state(), Where: p.where(), Decisions: p.decisions()}
	if p.provider != "" && p.there == nil {
		a.Unknown = append(a.Unknown, fmt.Sprintf(
			"what %s knows of the pod: give its kubeconfig with --remote-kubeconfig", p.provider))
	}
	if p.provider != "" && in.Remote != nil && in.Remote.ID != p.provider {
		a.Unknown = append(a.Unknown, "the given kubeconfig is that of "+in.Remote.ID)
	}
	for _, check := range podChecks {
		if found := check(p); found != nil {
			a.Cause = *found
			return a
		}
	}
	a.Cause = *p.unexplained()
	return a
}

// newPod finds what decides about a pod. Of pod and shadow, one may be nil.
func newPod(in *Input, local *corev1.Pod, shadow *offv1beta1.ShadowPod) *pod {
	p := &pod{Pod: local, in: in, local: &in.Local}
	if shadow != nil { // this cluster is the provider
		p.there, p.shadow, p.remote, p.remoteNamespace = &in.Local, shadow, local, in.Namespace
		if local == nil {
			p.Pod = &corev1.Pod{Spec: shadow.Spec.Pod}
			p.Pod.Namespace, p.Pod.Name = shadow.Namespace, shadow.Name
			p.Pod.Status.Phase = corev1.PodPending
		}
		return p
	}
	if node := named[*corev1.Node](&in.Local, "", local.Spec.NodeName); node != nil && isVirtual(node) {
		p.provider = node.Labels[api.LabelRemoteClusterID]
	} else if v := in.Local.virtualNode(local.Spec.NodeName); v != nil {
		p.provider = v.Spec.ClusterID
	}
	if p.provider == "" {
		return p
	}
	p.mapping, p.there = in.Local.namespaceMap(p.provider), in.at(p.provider)
	p.remoteNamespace = RemoteNamespace(&in.Local, local.Namespace, p.provider)
	if p.there != nil {
		p.shadow = madeFor[*offv1beta1.ShadowPod](p, local)
		p.remote = madeFor[*corev1.Pod](p, local)
	}
	return p
}

// madeFor returns the object at the provider that was made for a pod; nil if there is none, or it
// was made for a former pod of this name.
func madeFor[T object](p *pod, local *corev1.Pod) T {
	return first(p.there, func(o T) bool {
		uid := o.GetAnnotations()[translate.HomeUIDAnnotation]
		return o.GetNamespace() == p.remoteNamespace && o.GetName() == local.Name &&
			(uid == "" || uid == string(local.UID))
	})
}

// RemoteNamespace returns the name that this cluster wants for a namespace at a provider; empty if
// the namespace is not offloaded. It is never taken from a text of the provider, because users type
// it in commands.
func RemoteNamespace(c *Cluster, namespace, provider string) string {
	if m := c.namespaceMap(provider); m != nil {
		return m.Spec.DesiredMapping[namespace]
	}
	if o := c.offloading(namespace); o != nil {
		return plan.RemoteNamespaceName(namespace, o.Spec, c.ID)
	}
	return ""
}

// state returns the phase, or what is more exact.
func (p *pod) state() string {
	phase := string(cmp.Or(p.Status.Phase, corev1.PodPending))
	switch {
	case p.DeletionTimestamp != nil:
		return "Terminating"
	case p.Status.Phase == corev1.PodRunning && !ready(p.Pod):
		return phase + " and not ready"
	}
	return phase
}

func ready(p *corev1.Pod) bool {
	c := podCondition(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// where returns the node, and the place at the provider.
func (p *pod) where() string {
	switch {
	case p.shadow != nil && p.provider == "":
		origin := cmp.Or(p.shadow.Labels[api.LabelOrigin], "a consumer")
		return "this cluster, for " + origin + ", on " + p.nodeOf(p.remote)
	case p.Spec.NodeName == "":
		return "no node yet"
	case p.provider == "":
		return "this cluster, on node " + p.Spec.NodeName
	case p.remoteNamespace == "":
		return fmt.Sprintf("virtual node %s, not at provider %s", p.Spec.NodeName, p.provider)
	case p.there == nil:
		return fmt.Sprintf("virtual node %s, namespace %s at provider %s", p.Spec.NodeName, p.remoteNamespace,
			p.provider)
	}
	return fmt.Sprintf("virtual node %s, namespace %s at provider %s, on %s", p.Spec.NodeName, p.remoteNamespace,
		p.provider, p.nodeOf(p.remote))
}

func (p *pod) nodeOf(remote *corev1.Pod) string {
	if remote == nil || remote.Spec.NodeName == "" {
		return "no node yet"
	}
	return "node " + remote.Spec.NodeName
}

// decisions returns what led the pod to its place.
func (p *pod) decisions() (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, gate := range p.Spec.SchedulingGates {
		add("scheduling gate %s: not before it is removed", gate.Name)
	}
	if o := p.local.offloading(p.Namespace); o != nil {
		add("offloading of namespace %s: %s", p.Namespace, cmp.Or(o.Spec.PodOffloadingStrategy,
			offv1beta1.LocalAndRemoteStrategy))
	} else if p.local.mayRead("namespaceoffloadings") && p.shadow == nil {
		add("offloading of namespace %s: none", p.Namespace)
	}
	scheduled := podCondition(p.Pod, corev1.PodScheduled)
	switch {
	case p.Spec.NodeName == "" && scheduled != nil && scheduled.Status == corev1.ConditionFalse:
		add("scheduler: no node (%s)", scheduled.Reason)
	case p.Spec.NodeName != "":
		add("scheduler: node %s", p.Spec.NodeName)
	}
	if p.mapping != nil {
		if phase := p.mapping.Status.CurrentMapping[p.Namespace].Phase; phase != "" {
			add("%s about namespace %s: %s", p.provider, p.remoteNamespace, phase)
		}
	}
	if foreign := translate.ForeignObjects(p.Pod); foreign != "" {
		add("reflection: %s", foreign)
	}
	if lost := podCondition(p.Pod, translate.FieldsReflected); lost != nil && lost.Reason != UnknownVolume {
		add("reflection: %s", lost.Message)
	}
	for _, c := range p.Status.EphemeralContainerStatuses {
		if c.State.Waiting != nil && c.State.Waiting.Reason == translate.ReasonContainerRefused {
			add("container %s: %s", c.Name, c.State.Waiting.Message)
		}
	}
	if stalled := p.refusal(); stalled != nil {
		add("%s about the ShadowPod: %s", p.there.ID, stalled.Reason)
	}
	if p.remote != nil && p.provider != "" {
		add("scheduler of %s: %s", p.provider, p.nodeOf(p.remote))
	}
	return out
}

// works reports that nothing is missing.
func (p *pod) works() *Cause {
	switch {
	case p.Status.Phase == corev1.PodSucceeded:
		return cause(Nothing, p.local, "the pod has finished")
	case p.Status.Phase == corev1.PodRunning && ready(p.Pod) && p.DeletionTimestamp == nil:
		return cause(Nothing, p.local, "the pod runs and is ready")
	}
	return nil
}

// failed explains a pod that has ended.
func (p *pod) failed() *Cause {
	if p.Status.Phase != corev1.PodFailed {
		return nil
	}
	if p.Status.Reason == OffloadingAborted {
		return p.aborted()
	}
	message := strings.TrimSuffix(cmp.Or(p.Status.Reason, "it failed")+": "+p.Status.Message, ": ")
	for _, s := range statuses(p.Pod) {
		if ended := s.State.Terminated; ended != nil && ended.ExitCode != 0 {
			message = fmt.Sprintf("container %s ended with code %d (%s): %s", s.Name, ended.ExitCode, ended.Reason,
				ended.Message)
			break
		}
	}
	return cause(PodFailed, p.local, "%s", message).
		typed("kubectl -n %s logs %s --all-containers", p.Namespace, p.Name).
		typed("kubectl -n %s describe pod %s", p.Namespace, p.Name)
}

// aborted explains a pod whose namespace was taken back from its provider.
func (p *pod) aborted() *Cause {
	o, provider := p.local.offloading(p.Namespace), cmp.Or(p.provider, p.Spec.NodeName)
	if o != nil && p.mapping != nil && p.mapping.Spec.DesiredMapping[p.Namespace] != "" {
		return cause(OffloadingAborted, p.local, "the pod ended when namespace %s was taken back from %s; it is "+
			"offloaded there again: delete the pod", p.Namespace, provider).
			typed("kubectl -n %s delete pod %s", p.Namespace, p.Name)
	}
	found := cause(OffloadingAborted, p.local, "the pod ended, because namespace %s is not offloaded to %s any more",
		p.Namespace, provider)
	switch {
	case o != nil:
		found.Message += "; label its node, or offload to all"
		found.offloadToAll(o)
	case p.local.mayRead("namespaceoffloadings"):
		found.typed("liqoctl offload namespace %s", p.Namespace)
	}
	return found
}

// terminating explains a pod that is being deleted.
func (p *pod) terminating() *Cause {
	if p.DeletionTimestamp == nil {
		return nil
	}
	if p.Spec.NodeName != "" {
		if found := nodeCause(p.in, p.Spec.NodeName); found != nil {
			return found
		}
	}
	message := "the pod is being deleted, and its node has not confirmed its end"
	if len(p.Finalizers) > 0 {
		message = "the pod is being deleted, held by finalizers " + strings.Join(p.Finalizers, ", ")
	}
	return cause(Terminating, p.local, "%s", message).typed("kubectl -n %s describe pod %s", p.Namespace, p.Name)
}

// gated explains a pod that the scheduler may not see yet. That of a pod for a consumer is
// explained as part of the remote pod.
func (p *pod) gated() *Cause {
	if len(p.Spec.SchedulingGates) == 0 || p.remote == p.Pod {
		return nil
	}
	gate := p.Spec.SchedulingGates[0].Name
	return cause(SchedulingGated, p.local, "scheduling gate %q is for the controller to remove that has set it", gate).
		typed("kubectl -n %s get pod %s -o yaml", p.Namespace, p.Name)
}

// claims explains a pod without a node whose claims have no volume.
func (p *pod) claims() *Cause {
	if p.Spec.NodeName != "" || !p.local.mayRead("persistentvolumeclaims") || p.shadow != nil {
		return nil
	}
	return claimCause(p.local, p.Pod, ClaimPending)
}

// claimCause returns which claim of a pod has no volume. A pending claim without a warning waits
// for the scheduler, unless the scheduler says that it waits for the claim.
func claimCause(c *Cluster, p *corev1.Pod, pending string) *Cause {
	said := ""
	if c := podCondition(p, corev1.PodScheduled); c != nil && strings.Contains(c.Message, "unbound immediate") {
		said = c.Message
	}
	for _, volume := range p.Spec.Volumes {
		name, generated := "", volume.Ephemeral != nil
		switch {
		case generated:
			name = p.Name + "-" + volume.Name
		case volume.PersistentVolumeClaim != nil:
			name = volume.PersistentVolumeClaim.ClaimName
		default:
			continue
		}
		claim := named[*corev1.PersistentVolumeClaim](c, p.Namespace, name)
		switch {
		case claim == nil && !generated:
			return cause(ClaimMissing, c, "claim %s of the pod does not exist", name).
				typed("kubectl -n %s get persistentvolumeclaims", p.Namespace)
		case claim == nil || claim.Status.Phase != corev1.ClaimPending:
			continue
		}
		if problem := cmp.Or(c.warning("PersistentVolumeClaim", p.Namespace, name), said); problem != "" {
			return cause(pending, c, "claim %s has no volume: %s", name, problem).
				typed("kubectl -n %s describe persistentvolumeclaim %s", p.Namespace, name)
		}
	}
	return nil
}

// onNode explains a pod whose node does not run pods. While only the tunnel is missing, the pod
// still starts.
func (p *pod) onNode() *Cause {
	if p.Spec.NodeName == "" {
		return nil
	}
	found := nodeCause(p.in, p.Spec.NodeName)
	if found != nil && p.provider != "" && (found.Reason == TunnelDown || found.Reason == NodeNotReady) {
		return nil
	}
	return found
}

// tunnelDown explains a pod whose provider cannot be reached by the network.
func (p *pod) tunnelDown() *Cause {
	if p.provider == "" {
		return nil
	}
	return nodeCause(p.in, p.Spec.NodeName)
}

// unexplained returns the latest warning about the pod.
func (p *pod) unexplained() *Cause {
	message := p.local.warning("Pod", p.Namespace, p.Name)
	if message == "" && p.there != nil {
		message = p.there.warning("Pod", p.remoteNamespace, p.Name)
	}
	if c := podCondition(p.Pod, corev1.PodReady); message == "" && c != nil {
		message = strings.TrimPrefix(c.Reason+": "+c.Message, ": ")
	}
	return cause(Unexplained, p.local, "%s", cmp.Or(message, "nothing that could be read names a cause")).
		typed("kubectl -n %s describe pod %s", p.Namespace, p.Name)
}
