// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// Reasons of Services.
const (
	// ServiceMissing: the Service does not exist.
	ServiceMissing = "ServiceMissing"
	// NoEndpoint: a Service without selector has no ready endpoint.
	NoEndpoint = "NoEndpoint"
	// SelectsNoPod: the selector of the Service matches no pod.
	SelectsNoPod = "SelectsNoPod"
	// PodWithoutAddress: a pod is ready, but has no address that this cluster can reach.
	PodWithoutAddress = "PodWithoutAddress"
	// NoLocalPod: clients outside of the cluster are answered only by nodes with a pod, and all pods are at
	// providers.
	NoLocalPod = "NoLocalPod"
	// LoadBalancerPending: the Service gets no address from a load balancer.
	LoadBalancerPending = "LoadBalancerPending"
)

// explainService explains from where a Service answers.
func explainService(in *Input) Answer {
	c := &in.Local
	service := named[*corev1.Service](c, in.Namespace, in.Name)
	if service == nil {
		return Answer{State: absent, Where: "nowhere", Cause: *cause(ServiceMissing, c, "service %s does not exist",
			at(in.Namespace, in.Name)).typed("kubectl -n %s get services", in.Namespace)}
	}
	pods, endpoints := podsOf(c, service), readyEndpoints(c, service)
	a := Answer{State: "without a ready endpoint", Where: "answers from nowhere"}
	if endpoints > 0 {
		a.State = fmt.Sprintf("answering, with %d ready", endpoints)
		a.Where = "endpoints that no pod of its selector has"
	}
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		a.State, a.Where = "a name for "+service.Spec.ExternalName, "DNS"
	}
	if places := placesOf(in, pods); places != "" {
		a.Where = "ready pods: " + places
	}
	for _, m := range mapsOf(c, in.Namespace) {
		a.Decisions = append(a.Decisions,
			"reflection: also in namespace "+m.Spec.DesiredMapping[in.Namespace]+" of "+m.Name)
	}
	for _, e := range all[*corev1.Event](c) {
		about := e.InvolvedObject
		if e.Reason == fieldNotReflected && about.Kind == "Service" && about.Namespace == in.Namespace {
			a.Decisions = append(a.Decisions, "reflection of service "+about.Name+": "+e.Message)
		}
	}
	a.Cause = *serviceCause(in, service, pods, endpoints)
	return a
}

// podsOf returns the pods that the selector of a Service matches.
func podsOf(c *Cluster, s *corev1.Service) []*corev1.Pod {
	if len(s.Spec.Selector) == 0 {
		return nil
	}
	return slices.DeleteFunc(all[*corev1.Pod](c), func(p *corev1.Pod) bool {
		return p.Namespace != s.Namespace || !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.Labels))
	})
}

// readyEndpoints returns how many endpoints of a Service receive traffic.
func readyEndpoints(c *Cluster, s *corev1.Service) (n int) {
	for _, slice := range all[*discoveryv1.EndpointSlice](c) {
		if slice.Namespace != s.Namespace || slice.Labels[discoveryv1.LabelServiceName] != s.Name {
			continue
		}
		for _, e := range slice.Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) {
				n++
			}
		}
	}
	return n
}

// placesOf returns how many ready pods there are, by cluster.
func placesOf(in *Input, pods []*corev1.Pod) string {
	count := map[string]int{}
	for _, local := range pods {
		if ready(local) {
			count[cmp.Or(newPod(in, local, nil).provider, "this cluster")]++
		}
	}
	var places []string
	for _, place := range slices.Sorted(maps.Keys(count)) {
		places = append(places, fmt.Sprintf("%d in %s", count[place], place))
	}
	return strings.Join(places, ", ")
}

// allRemote reports whether there are ready pods, and none of them runs in this cluster.
func allRemote(in *Input, pods []*corev1.Pod) bool {
	running := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !ready(p) })
	local := func(p *corev1.Pod) bool { return newPod(in, p, nil).provider == "" }
	return len(running) > 0 && !slices.ContainsFunc(running, local)
}

// serviceCause returns what keeps a Service from answering.
func serviceCause(in *Input, s *corev1.Service, pods []*corev1.Pod, endpoints int) *Cause {
	c := &in.Local
	balanced := s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0
	switch {
	case s.Spec.Type == corev1.ServiceTypeExternalName:
		return cause(Nothing, c, "the name leads out of the cluster")
	case endpoints > 0 && balanced:
		return cause(LoadBalancerPending, c, "the load balancer has given no address: %s",
			cmp.Or(c.warning("Service", s.Namespace, s.Name), "the cluster may have none")).
			typed("kubectl -n %s describe service %s", s.Namespace, s.Name)
	case endpoints > 0 && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal &&
		allRemote(in, pods):
		return cause(NoLocalPod, c, "with externalTrafficPolicy Local only nodes with a ready pod answer clients "+
			"outside of the cluster, and all ready pods are at providers; set Cluster, or let a pod run here").
			typed("kubectl -n %s edit service %s", s.Namespace, s.Name)
	case endpoints > 0:
		return cause(Nothing, c, "the service has ready endpoints")
	case len(s.Spec.Selector) == 0:
		return cause(NoEndpoint, c, "the service has no selector, and no ready endpoint written by hand").
			typed("kubectl -n %s get endpointslices -l %s=%s", s.Namespace, discoveryv1.LabelServiceName, s.Name)
	case len(pods) == 0:
		return cause(SelectsNoPod, c, "no pod of namespace %s has the labels %s", s.Namespace,
			labels.SelectorFromSet(s.Spec.Selector)).typed("kubectl -n %s get pods --show-labels", s.Namespace)
	}
	for _, local := range pods {
		if !ready(local) {
			asked := *in
			asked.Subject = Subject{Kind: Pod, Namespace: local.Namespace, Name: local.Name}
			found := explainPod(&asked).Cause
			found.Message = "pod " + local.Name + ": " + found.Message
			return &found
		}
	}
	for _, local := range pods {
		if provider := newPod(in, local, nil).provider; provider != "" && local.Status.PodIP == "" {
			return cause(PodWithoutAddress, c, "pod %s runs at %s, with no address in the ranges that %s announces",
				local.Name, provider, provider).typed("kubectl get configurations.networking.liqo.io -A -o yaml").
				typed("liqoctl info peer %s", provider)
		}
	}
	return cause(Unexplained, c, "its pods are ready, and it has no endpoint: %s",
		cmp.Or(c.warning("Service", s.Namespace, s.Name), "no event says why")).
		typed("kubectl -n %s describe service %s", s.Namespace, s.Name)
}
