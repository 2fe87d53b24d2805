// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// Workloads lists the offloaded namespaces with what is in them.
type Workloads struct {
	Namespaces []OffloadedNamespace
	// Missing says why no namespaces are known; empty if they are.
	Missing string
	Hidden  []string
}

// OffloadedNamespace is a namespace that extends to providers.
type OffloadedNamespace struct {
	// Remote is its name at the providers; empty before it is known.
	Name, Remote, Strategy, Phase string
	Problems                      []string
	Pods                          []Pod
	Services                      []Service
	Claims                        []Claim
}

// Pod is a pod and where it runs.
type Pod struct {
	Name, Phase string
	// Node is empty before it is scheduled, Provider if it runs in this cluster.
	Node, Provider string
	// Host is the address of the machine it runs on, as its cluster knows it; empty before it runs.
	Host     string
	Ready    bool
	Restarts int
	// Why says what keeps it from being ready; empty if nothing does, or if that is not known.
	Why string
}

// Service is a Service and how many ready endpoints each cluster has for it, such as "here: 1, milan: 2".
type Service struct{ Name, Type, Address, Endpoints string }

// Claim is a PersistentVolumeClaim. Provider is the cluster of its data, empty for this one.
type Claim struct{ Name, Phase, Provider, Volume string }

// annotationSelectedNode names the node that the scheduler chose for the first pod of a claim. It is Kubernetes' own.
const annotationSelectedNode = "volume.kubernetes.io/selected-node"

// Workloads returns the offloaded namespaces by name.
func (s *Snapshot) Workloads() *Workloads {
	out, providers := &Workloads{Missing: s.Hidden["NamespaceOffloading"], Hidden: s.hidden()}, s.providers()
	places := map[string]*OffloadedNamespace{}
	for i := range s.Offloadings.Items {
		o := &s.Offloadings.Items[i]
		places[o.Namespace] = &OffloadedNamespace{Name: o.Namespace, Remote: o.Status.RemoteNamespaceName,
			Strategy: string(o.Spec.PodOffloadingStrategy), Phase: string(o.Status.OffloadingPhase),
			Problems: offloadingProblems(o)}
	}
	for i := range s.Pods.Items {
		if at := places[s.Pods.Items[i].Namespace]; at != nil {
			at.Pods = append(at.Pods, s.pod(&s.Pods.Items[i], providers))
		}
	}
	endpoints := endpointsBy(s.EndpointSlices.Items, providers)
	for i := range s.Services.Items {
		service := &s.Services.Items[i]
		if at := places[service.Namespace]; at != nil {
			at.Services = append(at.Services, Service{service.Name, string(service.Spec.Type), service.Spec.ClusterIP,
				endpoints[service.Namespace+"/"+service.Name]})
		}
	}
	for i := range s.Claims.Items {
		claim := &s.Claims.Items[i]
		if at := places[claim.Namespace]; at != nil {
			at.Claims = append(at.Claims, Claim{claim.Name, string(claim.Status.Phase),
				providers[claim.Annotations[annotationSelectedNode]], claim.Spec.VolumeName})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		at := places[name]
		slices.SortFunc(at.Pods, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
		slices.SortFunc(at.Services, func(a, b Service) int { return cmp.Compare(a.Name, b.Name) })
		slices.SortFunc(at.Claims, func(a, b Claim) int { return cmp.Compare(a.Name, b.Name) })
		out.Namespaces = append(out.Namespaces, *at)
	}
	return out
}

// offloadingProblems returns what is wrong with an offloaded namespace, by provider where that is known.
func offloadingProblems(o *offv1beta1.NamespaceOffloading) []string {
	var out []string
	if problem := Problem(o); problem != "" {
		out = append(out, problem)
	}
	for _, id := range slices.Sorted(maps.Keys(o.Status.RemoteNamespacesConditions)) {
		for _, c := range o.Status.RemoteNamespacesConditions[id] {
			if c.Type == offv1beta1.NamespaceReady && c.Status != corev1.ConditionTrue {
				out = append(out, id+": "+cmp.Or(c.Message, c.Reason))
			}
		}
	}
	return out
}

func (s *Snapshot) pod(pod *corev1.Pod, providers map[string]string) Pod {
	info := infoOf(pod)
	out := Pod{Name: pod.Name, Phase: info.Status, Node: pod.Spec.NodeName, Provider: providers[pod.Spec.NodeName],
		Host: pod.Status.HostIP, Ready: isHealthy(pod), Restarts: info.Restarts}
	if !out.Ready {
		out.Why = s.Source().podReason(pod)
	}
	return out
}

// endpointsBy counts the ready endpoints of each Service, "namespace/name", by the cluster that has them. An endpoint
// without a node that is a virtual one counts for this cluster.
func endpointsBy(list []discoveryv1.EndpointSlice, providers map[string]string) map[string]string {
	counts := map[string]map[string]int{}
	for i := range list {
		of := list[i].Namespace + "/" + list[i].Labels[discoveryv1.LabelServiceName]
		for _, e := range list[i].Endpoints {
			if !ptr.Deref(e.Conditions.Ready, true) {
				continue
			}
			if counts[of] == nil {
				counts[of] = map[string]int{}
			}
			counts[of][cmp.Or(providers[ptr.Deref(e.NodeName, "")], "here")]++
		}
	}
	out := map[string]string{}
	for of, by := range counts {
		var parts []string
		for _, where := range slices.Sorted(maps.Keys(by)) {
			parts = append(parts, where+": "+strconv.Itoa(by[where]))
		}
		out[of] = strings.Join(parts, ", ")
	}
	return out
}

// Where returns the cluster that a pod runs in: "here" or a provider; empty before it is scheduled.
func (p Pod) Where() string {
	if p.Node == "" {
		return ""
	}
	return cmp.Or(p.Provider, "here")
}

// State returns the phase of a pod, and whether all its containers are ready.
func (p Pod) State() string {
	if !p.Ready && p.Phase == string(corev1.PodRunning) {
		return "Running, not ready"
	}
	return p.Phase
}
