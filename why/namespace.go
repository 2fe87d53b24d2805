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
)

// NamespaceMissing is the reason of a namespace that does not exist.
const NamespaceMissing = "NamespaceMissing"

// explainNamespace explains where a namespace is offloaded to.
func explainNamespace(in *Input) Answer {
	c := &in.Local
	a := Answer{State: "not offloaded", Where: "this cluster"}
	namespace, o := named[*corev1.Namespace](c, "", in.Name), c.offloading(in.Name)
	var places []string
	for _, m := range mapsOf(c, in.Name) {
		provider, phase := m.Labels[api.LabelRemoteClusterID], m.Status.CurrentMapping[in.Name].Phase
		places = append(places, fmt.Sprintf("%s at provider %s", m.Spec.DesiredMapping[in.Name], provider))
		a.Decisions = append(a.Decisions, fmt.Sprintf("%s about namespace %s: %s", provider,
			m.Spec.DesiredMapping[in.Name], cmp.Or(string(phase), "no answer")))
	}
	for _, m := range endingAt(c, in.Name) {
		provider, remote := m.Labels[api.LabelRemoteClusterID], m.Status.CurrentMapping[in.Name]
		places = append(places, fmt.Sprintf("%s at provider %s", remote.RemoteNamespace, provider))
		a.Decisions = append(a.Decisions, fmt.Sprintf("%s about namespace %s, which is taken back: %s", provider,
			remote.RemoteNamespace, remote.Phase))
	}
	if len(places) > 0 {
		a.Where += ", and " + strings.Join(places, ", ")
	}
	if o != nil {
		a.State = "offloaded: " + cmp.Or(string(o.Status.OffloadingPhase), "no answer yet")
		a.Decisions = append([]string{fmt.Sprintf("offloading: %s, names by %s",
			cmp.Or(o.Spec.PodOffloadingStrategy, offv1beta1.LocalAndRemoteStrategy),
			cmp.Or(o.Spec.NamespaceMappingStrategy, offv1beta1.DefaultNameMapping))}, a.Decisions...)
	}
	if found := missingNamespace(in, namespace); found != nil {
		a.State, a.Cause = absent, *found
		return a
	}
	if namespace != nil {
		switch consumer, ours := namespace.Annotations[api.AnnotationManagedByNamespaceMap]; {
		case namespace.DeletionTimestamp != nil:
			a.State = "Terminating"
		case ours:
			a.State = "made for a consumer, by NamespaceMap " + consumer
		case namespace.Labels[api.LabelTenantNamespace] == api.True:
			a.State = "the tenant namespace for peer " + namespace.Labels[api.LabelRemoteClusterID]
		}
	}
	a.Cause = *namespaceState(in, namespace, o)
	return a
}

func missingNamespace(in *Input, namespace *corev1.Namespace) *Cause {
	if namespace != nil || in.Local.offloading(in.Name) != nil || !in.Local.mayRead("namespaces") {
		return nil
	}
	return cause(NamespaceMissing, &in.Local, "namespace %s does not exist", in.Name).typed("kubectl get namespaces")
}

// mapsOf returns the NamespaceMaps that name a namespace.
func mapsOf(c *Cluster, namespace string) (out []*offv1beta1.NamespaceMap) {
	for _, m := range all[*offv1beta1.NamespaceMap](c) {
		if m.Spec.DesiredMapping[namespace] != "" && m.Labels[api.LabelReplicated] != api.True {
			out = append(out, m)
		}
	}
	return out
}

// endingAt returns the NamespaceMaps of providers that still have a namespace which is taken back.
func endingAt(c *Cluster, namespace string) (out []*offv1beta1.NamespaceMap) {
	for _, m := range all[*offv1beta1.NamespaceMap](c) {
		if m.Spec.DesiredMapping[namespace] == "" && m.Status.CurrentMapping[namespace].Exists() &&
			m.Labels[api.LabelReplicated] != api.True {
			out = append(out, m)
		}
	}
	return out
}

// namespaceState returns what keeps pods of a namespace from providers. Of namespace and its
// offloading, each may be nil.
func namespaceState(in *Input, namespace *corev1.Namespace, o *offv1beta1.NamespaceOffloading) *Cause {
	c := &in.Local
	switch {
	case namespace != nil && namespace.DeletionTimestamp != nil:
		for _, m := range endingAt(c, in.Name) {
			provider := m.Labels[api.LabelRemoteClusterID]
			if problem := unreachable(c.peer(provider)); problem != "" {
				return cause(ProviderUnreachable, c, "the namespace is being deleted, and the API server of %s, "+
					"which has not removed its own, does not answer: %s", provider, problem).
					typed("liqoctl info peer %s", provider)
			}
		}
		var messages []string
		for _, condition := range namespace.Status.Conditions {
			if condition.Status == corev1.ConditionTrue {
				messages = append(messages, condition.Message)
			}
		}
		return cause(Terminating, c, "the namespace is being deleted: %s",
			cmp.Or(strings.Join(messages, "; "), "it is being emptied")).typed("kubectl describe namespace %s", in.Name)
	case namespace != nil && (namespace.Annotations[api.AnnotationManagedByNamespaceMap] != "" ||
		namespace.Labels[api.LabelTenantNamespace] == api.True):
		return cause(Nothing, c, "the namespace belongs to a peering")
	case o == nil && !c.mayRead("namespaceoffloadings"):
		return cause(Unexplained, c, "the user may not read whether the namespace is offloaded")
	case o == nil:
		return cause(NotOffloaded, c, "namespace %s is not offloaded, so its pods stay in this cluster", in.Name).
			typed("liqoctl offload namespace %s", in.Name)
	}
	for _, m := range mapsOf(c, in.Name) {
		if problem := unreachable(c.peer(m.Labels[api.LabelRemoteClusterID])); problem != "" {
			provider := m.Labels[api.LabelRemoteClusterID]
			return cause(ProviderUnreachable, c, "the API server of %s does not answer: %s", provider, problem).
				typed("liqoctl info peer %s", provider)
		}
		if found := namespaceCause(in, in.Name, m); found != nil {
			return found
		}
	}
	switch {
	case len(mapsOf(c, in.Name)) > 0 || !c.mayRead("namespacemaps"):
		if problem := unmet(o.Status.Conditions, "Ready"); problem != "" {
			return cause(Unexplained, c, "%s", problem).
				typed("kubectl -n %s get namespaceoffloading %s -o yaml", in.Name, api.NamespaceOffloadingName)
		}
		return cause(Nothing, c, "pods of the namespace may run where it is offloaded to")
	case len(c.virtualNodes()) == 0:
		return noVirtualNode(c, "")
	}
	return cause(SelectorMatchesNone, c, "the cluster selector of namespace %s matches no virtual node; label one, or "+
		"offload to all", in.Name).offloadToAll(o)
}

// noVirtualNode returns the cause of a cluster without providers, with what the scheduler said.
func noVirtualNode(c *Cluster, said string) *Cause {
	return cause(NoVirtualNode, c, "there is no virtual node; peer with a provider, whose kubeconfig is PROVIDER: %s",
		said).typed("liqoctl peer --remote-kubeconfig PROVIDER")
}

// namespaceCause returns why a mapped namespace does not exist at its provider; nil = it does.
func namespaceCause(in *Input, namespace string, m *offv1beta1.NamespaceMap) *Cause {
	provider, remote := m.Labels[api.LabelRemoteClusterID], m.Spec.DesiredMapping[namespace]
	there, said := &Cluster{ID: provider}, namespaceAnswer(&in.Local, namespace, m)
	if other := in.at(provider); other != nil {
		there = other
		for _, theirs := range all[*offv1beta1.NamespaceMap](other) {
			if theirs.Labels[api.LabelReplicated] == api.True && theirs.Spec.DesiredMapping[namespace] == remote {
				said = cmp.Or(unmet(theirs.Status.Conditions, "Ready"), said)
			}
		}
	}
	switch phase := m.Status.CurrentMapping[namespace].Phase; phase {
	case offv1beta1.NamespaceAccepted:
		return nil
	case offv1beta1.NamespaceCreationLoopBackOff:
		return cause(NamespaceNameTaken, there, "%s does not give namespace %s: %s", provider, remote,
			cmp.Or(said, "it exists already, or its name is not granted")).
			typed("kubectl describe namespace %s", remote).typedAt(in.Local.ID,
			"kubectl -n %s get namespaceoffloading %s -o yaml", namespace, api.NamespaceOffloadingName)
	default:
		return cause(NamespacePending, there, "%s has not created namespace %s (%s): %s", provider, remote,
			cmp.Or(string(phase), "no answer"),
			cmp.Or(said, "its controller may not run, or still removes a former one")).
			typedAt(in.Local.ID, "liqoctl info peer %s", provider).typed("kubectl describe namespace %s", remote)
	}
}

// namespaceAnswer returns what the provider of a map has answered about a namespace, as this
// cluster reports it.
func namespaceAnswer(c *Cluster, namespace string, m *offv1beta1.NamespaceMap) string {
	if o := c.offloading(namespace); o != nil {
		for _, condition := range o.Status.RemoteNamespacesConditions[m.Name] {
			if condition.Type == offv1beta1.NamespaceReady && condition.Status != corev1.ConditionTrue &&
				condition.Message != "" {
				return condition.Message
			}
		}
	}
	return unmet(m.Status.Conditions, "Ready")
}
