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

	"github.com/liqo-go/liqo/api"
	offv1beta1 "github.com/liqo-go/liqo/api/offloading/v1beta1"
)

// Workloads lists the offloaded namespaces with what is in them, and the pods that run here for consumers.
type Workloads struct {
	Namespaces []OffloadedNamespace
	Consumers  []Consumer
	// Missing says why no namespaces are known; empty if they are. PodsMissing does so for their pods, ConsumersMissing
	// for the pods of consumers.
	Missing, PodsMissing, ConsumersMissing string
	// Unexplained is how many pods that are not ready show only what their status says.
	Unexplained int
	Hidden      []string
}

// Consumer is a consumer with the pods that it wants to run here.
type Consumer struct {
	ClusterID string
	Pods      []Pod
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
	Namespace, Name, Phase string
	// Node and Where, its cluster, are empty before it is scheduled. Where is here, a provider or notKnown.
	Node, Where string
	// Provider is empty unless it runs at one.
	Provider string
	// Host is the address of the node it runs on. At a provider it is the name of the node there, as long as events of
	// the pod name it, which API servers keep for an hour by default, and notKnown later. It is empty before it runs.
	Host     string
	Ready    bool
	Restarts int
	// Why says what keeps it from being ready; empty if nothing does, or if that is not known. Commands are what to
	// type then, those of package why.
	Why      string
	Commands []string
}

// Service is a Service and how many ready endpoints each cluster has for it, such as "here: 1, milan: 2".
type Service struct{ Name, Type, Address, Endpoints string }

// Claim is a PersistentVolumeClaim. Where is the cluster of its data; empty before there are any.
type Claim struct{ Name, Phase, Where, Volume string }

// Places of pods, endpoints and data.
const (
	here     = "here"
	notKnown = "not known"
)

// annotationSelectedNode names the node that the scheduler chose for the first pod of a claim. It is Kubernetes' own.
const annotationSelectedNode = "volume.kubernetes.io/selected-node"

// Workloads returns the offloaded namespaces by name.
func (s *Snapshot) Workloads() *Workloads { return s.workloads(s.Source()) }

func (s *Snapshot) workloads(source Source) *Workloads {
	providers := s.providers()
	out := &Workloads{Missing: s.Hidden["NamespaceOffloading"], PodsMissing: s.Hidden["Pod"],
		Consumers: s.consumers(providers, source), ConsumersMissing: s.Hidden["ShadowPod"], Hidden: s.hidden()}
	places := map[string]*OffloadedNamespace{}
	for i := range s.Offloadings.Items {
		o := &s.Offloadings.Items[i]
		places[o.Namespace] = &OffloadedNamespace{Name: o.Namespace, Remote: o.Status.RemoteNamespaceName,
			Strategy: string(o.Spec.PodOffloadingStrategy), Phase: string(o.Status.OffloadingPhase),
			Problems: offloadingProblems(o)}
	}
	reports := s.remoteReports()
	for i := range s.Pods.Items {
		pod := &s.Pods.Items[i]
		if at := places[pod.Namespace]; at != nil {
			row := s.pod(pod, providers, source)
			if report := reports[about{"Pod", pod.Namespace, pod.Name}]; row.Provider != "" && report != nil &&
				report.Labels[api.LabelOrigin] == row.Provider && report.InvolvedObject.UID == pod.UID {
				row.Host = report.Source.Host
			} else if row.Provider != "" && pod.Status.Phase == corev1.PodRunning {
				row.Host = notKnown
			}
			at.Pods = append(at.Pods, row)
		}
	}
	endpoints := s.endpoints(providers)
	for i := range s.Services.Items {
		service := &s.Services.Items[i]
		if at := places[service.Namespace]; at != nil {
			have := endpoints[service.Namespace+"/"+service.Name]
			if s.Hidden["EndpointSlice"] != "" {
				have = notKnown
			}
			at.Services = append(at.Services, Service{service.Name, string(service.Spec.Type), service.Spec.ClusterIP,
				have})
		}
	}
	for i := range s.Claims.Items {
		claim := &s.Claims.Items[i]
		if at := places[claim.Namespace]; at != nil {
			where := s.place(claim.Annotations[annotationSelectedNode], providers)
			switch {
			case claim.Status.Phase != corev1.ClaimBound:
				where = "" // a chosen node may be given up again
			case where == "": // no node was waited for, so none of a provider
				where = here
			}
			at.Claims = append(at.Claims, Claim{claim.Name, string(claim.Status.Phase), where, claim.Spec.VolumeName})
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

// remoteReports returns the latest event of each pod by a kubelet of a provider. It names the node there. Nothing else
// in this cluster does.
func (s *Snapshot) remoteReports() map[about]*corev1.Event {
	out := map[about]*corev1.Event{}
	for i := range s.Events.Items {
		e := &s.Events.Items[i]
		of := about{e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name}
		last, fromKubelet := out[of], e.Source.Component == "kubelet" && e.Source.Host != ""
		if e.Labels[api.LabelOrigin] != "" && fromKubelet &&
			(last == nil || !EventTime(e).Before(EventTime(last))) {
			out[of] = e
		}
	}
	return out
}

// consumers returns the pods of ShadowPods by the consumers that made these.
func (s *Snapshot) consumers(providers map[string]string, source Source) []Consumer {
	if len(s.ShadowPods.Items) == 0 {
		return nil
	}
	made := map[string]*corev1.Pod{}
	for i := range s.Pods.Items {
		if pod := &s.Pods.Items[i]; pod.Labels[api.LabelManagedBy] == api.ManagedByShadowPod {
			made[pod.Namespace+"/"+pod.Name] = pod
		}
	}
	pods := map[string][]Pod{}
	for i := range s.ShadowPods.Items {
		shadow := &s.ShadowPods.Items[i]
		phase := shadow.Status.Phase
		row := Pod{Namespace: shadow.Namespace, Name: shadow.Name, Phase: string(phase), Why: Problem(shadow),
			Ready: phase == corev1.PodRunning || phase == corev1.PodSucceeded} // nothing else is known of it
		if pod := made[shadow.Namespace+"/"+shadow.Name]; pod != nil {
			row = s.pod(pod, providers, source)
		}
		pods[shadow.Labels[api.LabelOrigin]] = append(pods[shadow.Labels[api.LabelOrigin]], row)
	}
	var out []Consumer
	for _, id := range slices.Sorted(maps.Keys(pods)) {
		slices.SortFunc(pods[id], func(a, b Pod) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
		out = append(out, Consumer{id, pods[id]})
	}
	return out
}

// place returns the cluster of a node: here, a provider or notKnown, as of a node that is gone; empty without a node.
func (s *Snapshot) place(node string, providers map[string]string) string {
	switch {
	case node == "" || providers[node] != "":
		return providers[node]
	case slices.ContainsFunc(s.Nodes.Items, func(n corev1.Node) bool { return n.Name == node }),
		s.Hidden["Node"] != "" && s.Hidden["VirtualNode"] == "": // then the node is none of a provider
		return here
	}
	return notKnown
}

// Broken returns how many namespaces have problems, beside those of their pods.
func (w *Workloads) Broken() int {
	n := 0
	for _, at := range w.Namespaces {
		n += min(1, len(at.Problems))
	}
	return n
}

// NotReady returns how many pods of offloaded namespaces are not ready. Those of consumers are not counted.
func (w *Workloads) NotReady() int {
	n := 0
	for _, at := range w.Namespaces {
		n += notReady(at.Pods)
	}
	return n
}

// NotReady returns how many of the pods are not ready.
func (c Consumer) NotReady() int { return notReady(c.Pods) }

func notReady(pods []Pod) int {
	n := 0
	for _, pod := range pods {
		if !pod.Ready {
			n++
		}
	}
	return n
}

// Count returns how many problems there are: namespaces with problems, and pods that are not ready.
func (w *Workloads) Count() int { return w.Broken() + w.NotReady() }

// MostCauses bounds how many causes the map quotes.
const MostCauses = 3

// Causes returns the first problems of namespaces and pods.
func (w *Workloads) Causes() []string {
	var namespaces, pods []string
	for _, at := range w.Namespaces {
		for _, problem := range at.Problems {
			namespaces = append(namespaces, "namespace "+at.Name+": "+problem)
		}
		for _, pod := range at.Pods {
			if !pod.Ready {
				why := cmp.Or(pod.Why, pod.State())
				if len(pod.Commands) > 0 {
					why += "; type '" + pod.Commands[0] + "'"
				}
				pods = append(pods, "pod "+at.Name+"/"+pod.Name+": "+why)
			}
		}
	}
	all := slices.Concat(namespaces, pods)
	return all[:min(len(all), MostCauses)]
}

// offloadingProblems returns what is wrong with an offloaded namespace, and at providers that this does not quote.
func offloadingProblems(o *offv1beta1.NamespaceOffloading) []string {
	var out []string
	problem := Problem(o)
	if problem != "" {
		out = append(out, problem)
	}
	for _, id := range slices.Sorted(maps.Keys(o.Status.RemoteNamespacesConditions)) {
		for _, c := range o.Status.RemoteNamespacesConditions[id] {
			bad := c.Type == offv1beta1.NamespaceReady && c.Status != corev1.ConditionTrue
			if said := cmp.Or(c.Message, c.Reason); bad && !strings.Contains(problem, said) {
				out = append(out, id+": "+said)
			}
		}
	}
	return out
}

func (s *Snapshot) pod(pod *corev1.Pod, providers map[string]string, source Source) Pod {
	info := infoOf(pod)
	node := pod.Spec.NodeName
	out := Pod{Namespace: pod.Namespace, Name: pod.Name, Phase: info.Status, Node: node,
		Where: s.place(node, providers), Provider: providers[node], Ready: isHealthy(pod), Restarts: info.Restarts}
	if out.Where == here { // at a provider it would be the virtual kubelet's own
		out.Host = pod.Status.HostIP
	}
	switch {
	case out.Ready:
	case out.Provider != "":
		out.Why = source.providerReason(pod, out.Provider)
	default:
		out.Why = source.podReason(pod)
	}
	if pod.DeletionTimestamp != nil {
		out.Phase = "Terminating"
	}
	return out
}

// endpoints counts the ready endpoints of each Service, "namespace/name", by the cluster that has them.
func (s *Snapshot) endpoints(providers map[string]string) map[string]string {
	counts, list := map[string]map[string]int{}, s.EndpointSlices.Items
	for i := range list {
		of := list[i].Namespace + "/" + list[i].Labels[discoveryv1.LabelServiceName]
		for _, e := range list[i].Endpoints {
			if !ptr.Deref(e.Conditions.Ready, true) {
				continue
			}
			if counts[of] == nil {
				counts[of] = map[string]int{}
			}
			counts[of][cmp.Or(s.place(ptr.Deref(e.NodeName, ""), providers), notKnown)]++
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

// State returns the phase of a pod, and whether all its containers are ready.
func (p Pod) State() string {
	if !p.Ready && p.Phase == string(corev1.PodRunning) {
		return "Running, not ready"
	}
	return p.Phase
}
