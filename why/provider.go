// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/reflection/translate"
)

// Reasons of pods at a provider.
const (
	// NamespaceNotMapped: the namespace of the pod is not offloaded to the provider of its node.
	NamespaceNotMapped = "NamespaceNotMapped"
	// NamespaceNameTaken: the provider does not give the name of the remote namespace.
	NamespaceNameTaken = "NamespaceNameTaken"
	// NamespacePending: the provider has not created the remote namespace.
	NamespacePending = "NamespacePending"
	// UnknownVolume: this version of Liqo does not know the kind of a volume of the pod.
	UnknownVolume = translate.ReasonUnknownVolume
	// ShadowPodMissing: the virtual kubelet has not created the ShadowPod.
	ShadowPodMissing = "ShadowPodMissing"
	// ShadowPodPending: the controller of the provider has not created the pod.
	ShadowPodPending = "ShadowPodPending"
	// QuotaRefused: the pod exceeds what the provider has granted.
	QuotaRefused = "QuotaRefused"
	// PodForbidden: the pod uses a feature that the provider does not grant.
	PodForbidden = "PodForbidden"
	// ProviderRefuses: the API server of the provider refuses the pod.
	ProviderRefuses = "ProviderRefuses"
	// RemoteGated: the controller of the provider has not noted a pod that runs to its end.
	RemoteGated = "RemoteGated"
	// ProviderHasNoPlace: the scheduler of the provider finds no node.
	ProviderHasNoPlace = "ProviderHasNoPlace"
	// RemoteClaimPending: a claim of the pod gets no volume at the provider.
	RemoteClaimPending = "RemoteClaimPending"
	// ImageMissing: the node cannot get an image.
	ImageMissing = "ImageMissing"
	// ContainerFailing: a container does not start, or ends again and again.
	ContainerFailing = "ContainerFailing"
)

// notMapped explains a pod whose namespace does not exist at the provider of its node.
func (p *pod) notMapped() *Cause {
	if p.provider == "" {
		return nil
	}
	o := p.local.offloading(p.Namespace)
	mapped := p.mapping != nil && p.mapping.Spec.DesiredMapping[p.Namespace] != ""
	backsOff := p.Status.Reason == api.ReasonBackOff
	switch {
	case o == nil && (backsOff || !mapped) && p.local.mayRead("namespaceoffloadings"):
		return cause(NotOffloaded, p.local, "the pod is on virtual node %s, but namespace %s is not offloaded",
			p.Spec.NodeName, p.Namespace).typed("liqoctl offload namespace %s", p.Namespace)
	case o != nil && !mapped && p.local.mayRead("namespacemaps"):
		return cause(NamespaceNotMapped, p.local, "namespace %s is not offloaded to %s; label its node, or offload "+
			"to all", p.Namespace, p.provider).offloadToAll(o)
	case !mapped:
		return nil
	}
	return namespaceCause(p.in, p.Namespace, p.mapping)
}

// providerCluster returns the cluster of the remote pod; one that only has an ID without access.
func (p *pod) providerCluster() *Cluster {
	if p.there != nil {
		return p.there
	}
	return &Cluster{ID: p.provider}
}

// refusal returns the condition by which the provider refuses the ShadowPod; nil = it does not.
func (p *pod) refusal() *metav1.Condition {
	if p.shadow == nil {
		return nil
	}
	c := meta.FindStatusCondition(p.shadow.Status.Conditions, "Stalled")
	if c == nil || c.Status != metav1.ConditionTrue {
		return nil
	}
	return c
}

// unknownVolume explains a pod that the virtual kubelet does not push, because it does not know the
// kind of a volume.
func (p *pod) unknownVolume() *Cause {
	if c := podCondition(p.Pod, translate.FieldsReflected); c != nil && c.Reason == UnknownVolume && p.shadow == nil {
		return cause(UnknownVolume, p.local, "%s", c.Message).typed("liqoctl version")
	}
	return nil
}

// notCreated explains a pod that does not exist at the provider.
func (p *pod) notCreated() *Cause {
	switch {
	case p.there == nil:
		return p.reported()
	case p.remote != nil:
		return nil
	}
	if stalled := p.refusal(); stalled != nil {
		return p.refused(stalled.Reason, stalled.Message)
	}
	if p.shadow == nil && !p.there.mayRead("shadowpods") || !p.there.mayRead("pods") {
		return p.reported()
	}
	if p.shadow == nil {
		return cause(ShadowPodMissing, p.local, "the virtual kubelet of node %s has not created the ShadowPod: %s",
			p.Spec.NodeName, cmp.Or(p.local.warning("Pod", p.Namespace, p.Name), "no event says why")).
			typed("kubectl -n %s describe pod %s", p.Namespace, p.Name).typed("liqoctl info peer %s", p.provider)
	}
	waits := unmet(p.shadow.Status.Conditions, "Ready")
	return cause(ShadowPodPending, p.there, "the controller has not created the pod: %s",
		cmp.Or(waits, "it may not run")).
		typed("kubectl -n %s describe shadowpod %s", p.shadow.Namespace, p.shadow.Name).
		typed("kubectl get pods -A -l app.kubernetes.io/part-of=liqo")
}

// reported explains a pod by what its virtual kubelet has reported of the provider. No other
// kubelet says that a pod with a node is not scheduled.
func (p *pod) reported() *Cause {
	scheduled := podCondition(p.Pod, corev1.PodScheduled)
	if p.Spec.NodeName == "" || scheduled == nil || scheduled.Status != corev1.ConditionFalse {
		return nil
	}
	if quotaSays(scheduled.Message) {
		return p.refused(QuotaRefused, scheduled.Message)
	}
	return p.seenThere(cause(ProviderHasNoPlace, p.providerCluster(), "%s has no place for the pod, or refuses it; "+
		"request less, let the pod run elsewhere, or have the provider's administrator make room: %s",
		cmp.Or(p.provider, "the provider"), cmp.Or(scheduled.Message, scheduled.Reason)))
}

// quotaSays reports whether a message is one of a quota, as offloading/plan/quota.go: Refusal
// returns it.
func quotaSays(message string) bool {
	return slices.ContainsFunc([]string{"quota usage exceeded", "quota limit not found", "user is cordoned",
		"failed getting quota"}, func(part string) bool { return strings.Contains(message, part) })
}

// refused explains a pod that the provider refuses for a reason.
func (p *pod) refused(reason, message string) *Cause {
	switch reason {
	case QuotaRefused:
		found := cause(QuotaRefused, p.providerCluster(), "%s", message)
		consumer := p.local.ID
		if p.provider == "" && p.shadow != nil {
			consumer = p.shadow.Labels[api.LabelOrigin]
			found.typed("liqoctl info peer %s", consumer)
		}
		if strings.Contains(message, "cordoned") {
			found.typed("liqoctl uncordon tenant %s", consumer)
		} else if p.provider != "" {
			p.askForMore(found, p.Spec.NodeName, p.exceeded(message))
			found.typedAt(p.local.ID, "liqoctl info peer %s", p.provider)
		}
		return p.seenThere(found)
	case PodForbidden:
		return p.seenThere(cause(PodForbidden, p.providerCluster(), "%s", message))
	}
	return p.seenThere(cause(ProviderRefuses, p.providerCluster(), "%s refuses the pod (%s): %s",
		cmp.Or(p.provider, "this cluster"), reason, message))
}

// exceeded returns the requests of the pod for the resource that a message of the quota names.
func (p *pod) exceeded(message string) corev1.ResourceList {
	named := p.demandIn(message, "peering ")
	if len(named) == 0 && strings.Contains(message, "quota limit not found") {
		first, _, _ := strings.Cut(message, " ")
		named = p.demandIn(first, "")
	}
	return named
}

// seenThere adds the command that shows the objects of the pod at the provider.
func (p *pod) seenThere(found *Cause) *Cause {
	if p.remoteNamespace != "" && p.remote != nil {
		return found.typed("kubectl -n %s describe pod %s", p.remoteNamespace, p.Name)
	}
	if p.remoteNamespace != "" {
		found.typed("kubectl -n %s describe shadowpod %s", p.remoteNamespace, p.Name)
	}
	if p.shadow != nil && p.provider == "" { // the pod does not exist
		return found
	}
	return found.typedAt(p.local.ID, "kubectl -n %s describe pod %s", p.Namespace, p.Name)
}

// remotePlace explains a pod that has no node at the provider.
func (p *pod) remotePlace() *Cause {
	if p.remote == nil || p.remote.Spec.NodeName != "" {
		return nil
	}
	if gates := p.remote.Spec.SchedulingGates; len(gates) > 0 && gates[0].Name == api.GateNoted {
		return cause(RemoteGated, p.there, "the controller, which notes the pod before it may start, does not run "+
			"or is refused").typed("kubectl -n %s describe shadowpod %s", p.remoteNamespace, p.Name)
	} else if len(gates) > 0 {
		return cause(SchedulingGated, p.there, "scheduling gate %q is for the controller to remove that has set it",
			gates[0].Name).typed("kubectl -n %s get pod %s -o yaml", p.remoteNamespace, p.Name)
	}
	if p.there.mayRead("persistentvolumeclaims") {
		if found := claimCause(p.there, p.remote, RemoteClaimPending); found != nil {
			return found
		}
	}
	scheduled := podCondition(p.remote, corev1.PodScheduled)
	if scheduled == nil {
		return cause(NotScheduled, p.there, "no scheduler has looked at the pod").
			typed("kubectl -n kube-system get pods")
	}
	found := cause(ProviderHasNoPlace, p.there, "no node of the provider has a place: %s",
		cmp.Or(scheduled.Message, scheduled.Reason))
	return found.typed("kubectl -n %s describe pod %s", p.remoteNamespace, p.Name)
}

// statuses returns the statuses of all containers, in the order in which they start.
func statuses(p *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
}

// containers explains a pod with a node whose containers do not start. The virtual kubelet reports
// the statuses of remote containers, so they are known without access to the provider.
func (p *pod) containers() *Cause {
	shown, c, namespace, node := p.Pod, p.local, p.Namespace, p.nodeOf(p.Pod)
	if p.remote != nil {
		shown, c, namespace, node = p.remote, p.there, p.remoteNamespace, p.nodeOf(p.remote)
	} else if p.remoteNamespace != "" {
		c, namespace, node = p.providerCluster(), p.remoteNamespace, "a node of "+p.provider
	}
	for _, s := range statuses(shown) {
		switch waiting, last := s.State.Waiting, s.LastTerminationState.Terminated; {
		case waiting != nil && strings.Contains(waiting.Reason, "Image"):
			return cause(ImageMissing, c, "%s cannot get image %q (%s): %s", node, s.Image, waiting.Reason,
				waiting.Message).typed("kubectl -n %s describe pod %s", namespace, p.Name)
		case waiting != nil && last != nil:
			return cause(ContainerFailing, c, "container %s ended with code %d (%s): %s", s.Name, last.ExitCode,
				cmp.Or(waiting.Reason, last.Reason), last.Message).
				typedAt(p.local.ID, "kubectl -n %s logs %s -c %s --previous", p.Namespace, p.Name, p.own(s.Name))
		case waiting != nil && waiting.Message != "":
			return cause(ContainerFailing, c, "container %s: %s: %s", s.Name, waiting.Reason, waiting.Message).
				typed("kubectl -n %s describe pod %s", namespace, p.Name)
		case s.State.Running != nil && !s.Ready:
			return cause(NotReady, c, "container %s runs but is not ready", s.Name).
				typedAt(p.local.ID, "kubectl -n %s logs %s -c %s", p.Namespace, p.Name, p.own(s.Name)).
				typed("kubectl -n %s describe pod %s", namespace, p.Name)
		}
	}
	return p.notReadyThere(shown, c, namespace)
}

// own returns the name of a container that a status names; empty if the pod has none of this name.
func (p *pod) own(name string) string {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		if c.Name == name {
			return name
		}
	}
	return ""
}

// notReadyThere explains a pod by its volumes and readiness gates.
func (p *pod) notReadyThere(shown *corev1.Pod, c *Cluster, namespace string) *Cause {
	if warning := c.warning("Pod", namespace, p.Name); warning != "" && shown.Status.Phase == corev1.PodPending {
		return cause(ContainerFailing, c, "the pod does not start: %s", warning).
			typed("kubectl -n %s describe pod %s", namespace, p.Name)
	}
	for _, gate := range p.Spec.ReadinessGates {
		if met := podCondition(p.Pod, gate.ConditionType); met == nil || met.Status != corev1.ConditionTrue {
			return cause(NotReady, p.local, "readiness gate %q is for a controller of this cluster to set",
				gate.ConditionType).typed("kubectl -n %s get pod %s -o yaml", p.Namespace, p.Name)
		}
	}
	return nil
}
