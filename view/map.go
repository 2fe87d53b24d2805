// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/liqo-go/liqo/api"
	corev1beta1 "github.com/liqo-go/liqo/api/core/v1beta1"
	offloadingplan "github.com/liqo-go/liqo/offloading/plan"
)

// Map is a cluster with all its peers.
type Map struct {
	Own       Own
	Peers     []MapPeer
	Workloads *Workloads
	// Missing says why no peers are known; empty if they are.
	Missing string
	// Hidden says which kinds are missing, and why.
	Hidden []string
}

// Own is the cluster itself. Version is empty and Health nil if they are not known.
type Own struct {
	ClusterID, Version string
	Health             *Health
	Ranges             Ranges
	Problems           []string
}

// Count returns how many problems the cluster, its peerings and its workloads have.
func (m *Map) Count() int {
	n := len(m.Own.Problems) + m.Workloads.Count()
	for _, p := range m.Peers {
		n += len(p.Problems) - p.Shortages
	}
	return n
}

// MapPeer is one peer and what joins it to this cluster.
type MapPeer struct {
	ClusterID string
	Role      corev1beta1.Role
	// Modules are networking, authentication and offloading, in this order.
	Modules [3]ModuleState
	// Link is the state of the tunnel; nil if there is none, or if LinkMissing says why it is not known.
	Link        *Connection
	LinkMissing string
	// Traffic holds the rates of the tunnel; nil if they are not known. TrafficMissing says why, if that is known.
	Traffic        *Traffic
	TrafficMissing string
	// Received are the amounts this cluster has from the peer, Provided those it gives to it.
	Received, Provided []Amount
	// Shortages is how many of the problems, the last ones, are amounts that do not suffice for pods that wait. Count
	// leaves them out: it counts the pods.
	Problems  []string
	Shortages int
}

// ModuleState is the state of one module of a peering.
type ModuleState struct {
	Name   string
	Status ModuleStatus
}

// IsProvider reports whether this cluster uses resources of the peer.
func (p *MapPeer) IsProvider() bool {
	return p.Role == corev1beta1.RoleProvider || p.Role == corev1beta1.RoleConsumerAndProvider
}

// IsConsumer reports whether the peer uses resources of this cluster.
func (p *MapPeer) IsConsumer() bool {
	return p.Role == corev1beta1.RoleConsumer || p.Role == corev1beta1.RoleConsumerAndProvider
}

// Amount is how much of one resource was granted, and how much of it pods request. Percent is the used part, 0 to 100.
// Used is empty if it is not known.
type Amount struct {
	Name, Granted, Used, Free string
	Percent                   int
}

// Map returns the cluster with all its peers, broken ones first.
func (s *Snapshot) Map() *Map {
	source, usage := s.Source(), s.usage()
	out := &Map{Own: s.own(source), Workloads: s.workloads(source), Missing: s.Hidden["ForeignCluster"],
		Hidden: s.hidden()}
	for _, f := range s.peers() {
		out.Peers = append(out.Peers, s.mapPeer(&f, InspectPeer(&f, s.of(f.Spec.ClusterID), source), usage))
	}
	slices.SortStableFunc(out.Peers, func(a, b MapPeer) int {
		return min(1, len(b.Problems)) - min(1, len(a.Problems))
	})
	return out
}

func (s *Snapshot) mapPeer(f *corev1beta1.ForeignCluster, p *Peer, usage usage) MapPeer {
	id := f.Spec.ClusterID
	return MapPeer{
		ClusterID: id, Role: p.Info.Role, Link: p.Network.Connection, LinkMissing: s.Hidden["Connection"],
		Traffic: s.trafficOf(id), TrafficMissing: usage.unmetered[id],
		Problems: append(p.Problems(), usage.short[id]...), Shortages: len(usage.short[id]),
		Modules: [...]ModuleState{{"network", p.Network.Status}, {"access", p.Authentication.Status},
			{"offloading", p.Offloading.Status}},
		Received: s.amounts(usage.received[id], "Pod"), Provided: s.amounts(usage.provided[id], "ShadowPod"),
	}
}

// details holds, by the condition of a ForeignCluster, the kind of the objects that say more than it.
var details = map[corev1beta1.ConditionType]string{
	corev1beta1.NetworkConfigurationStatusCondition: "configuration",
	corev1beta1.NetworkGatewayServerStatusCondition: "gatewayserver",
	corev1beta1.NetworkGatewayClientStatusCondition: "gatewayclient",
	corev1beta1.NetworkConnectionStatusCondition:    "connection",
	corev1beta1.AuthTenantStatusCondition:           "tenant",
	corev1beta1.AuthIdentityControlPlaneCondition:   "identity",
	corev1beta1.OffloadingVirtualNodeCondition:      "virtualnode",
	corev1beta1.OffloadingNodeCondition:             "node",
}

// Problems returns what is wrong with a peering: the alerts of its modules and slices. It leaves out what a
// ForeignCluster sums up or repeats of another object.
func (p *Peer) Problems() []string {
	out := slices.Concat(p.Network.Alerts, p.Authentication.Alerts, p.Offloading.Alerts)
	for _, slice := range p.Authentication.ResourceSlices {
		for _, alert := range slice.Alerts {
			out = append(out, "resource slice "+slice.Name+": "+alert)
		}
	}
	kinds, seen := map[string]bool{}, map[string]bool{}
	for _, problem := range out {
		kind, _, _ := strings.Cut(problem, " ")
		kinds[kind] = true
	}
	return slices.DeleteFunc(out, func(problem string) bool {
		condition, said, ok := strings.Cut(problem, ": ")
		switch {
		case kinds[details[corev1beta1.ConditionType(condition)]]:
			return true
		case !ok:
			said = problem
		}
		if at := strings.LastIndex(said, " ("); at > 0 && strings.HasSuffix(said, ")") {
			said = said[:at] // the reason, which alerts of conditions have at their end
		}
		defer func() { seen[said] = true }()
		return seen[said]
	})
}

func (s *Snapshot) own(source Source) Own {
	out := Own{ClusterID: s.ClusterID}
	var pods []corev1.Pod
	for _, pod := range s.Pods.Items {
		if pod.Namespace == s.Namespace {
			pods = append(pods, pod)
		}
	}
	if _, hidden := s.Hidden["Pod"]; !hidden && len(s.Namespaces) == 0 {
		health := InstallationHealth(pods)
		out.Health = &health
		for i := range pods {
			if pod := &pods[i]; !isHealthy(pod) {
				problem := nameOf(pod) + ": " + cmp.Or(source.podReason(pod), "not ready")
				out.Problems = append(out.Problems, problem)
			}
		}
		if len(pods) == 0 {
			out.Problems = append(out.Problems, fmt.Sprintf("no pod of Liqo runs in namespace %s; run '%s install'",
				s.Namespace, s.Command))
		}
	}
	for _, d := range s.Deployments.Items {
		if d.Namespace == s.Namespace && d.Name == api.ControllerManagerName {
			out.Version = d.Labels[api.LabelAppVersion]
		}
	}
	out.Ranges = OwnRanges(s.Networks.Items)
	return out
}

// hidden returns a line for each kind that the snapshot lacks.
func (s *Snapshot) hidden() []string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(s.Hidden)) {
		out = append(out, kind+": "+s.Hidden[kind])
	}
	if len(s.Namespaces) > 0 {
		out = append(out, "objects in other namespaces than "+strings.Join(s.Namespaces, ", ")+": not read")
	}
	return out
}

// use holds granted amounts, and how much of them is used.
type use struct{ granted, used corev1.ResourceList }

// usage holds the amounts by peer. In short are problems: which amounts do not suffice for pods that wait. In unmetered
// is why the traffic of a peer is not known.
type usage struct {
	received, provided map[string]use
	short              map[string][]string
	unmetered          map[string]string
}

// usage sums up the capacity of virtual nodes and the requests of pods on them, and the quotas of consumers and the
// requests of their ShadowPods.
func (s *Snapshot) usage() usage {
	out := usage{received: map[string]use{}, provided: map[string]use{}, short: s.shortages(),
		unmetered: s.unmetered()}
	providers := s.providers()
	for _, v := range s.VirtualNodes.Items {
		out.received[v.Spec.ClusterID] = out.received[v.Spec.ClusterID].plus(v.Spec.ResourceQuota.Hard, nil)
	}
	for i := range s.Pods.Items {
		pod := &s.Pods.Items[i]
		if id, offloaded := providers[pod.Spec.NodeName]; offloaded && !api.Finished(pod.Status.Phase) {
			out.received[id] = out.received[id].plus(nil, offloadingplan.Demand(&pod.Spec))
		}
	}
	for _, q := range s.Quotas.Items {
		id := q.Labels[api.LabelRemoteClusterID]
		out.provided[id] = out.provided[id].plus(q.Spec.Resources, nil)
	}
	for i := range s.ShadowPods.Items {
		pod := &s.ShadowPods.Items[i]
		refused := pod.Status.Phase != corev1.PodRunning && meta.IsStatusConditionTrue(pod.Status.Conditions, "Stalled")
		if id := pod.Labels[api.LabelOrigin]; !api.Finished(pod.Status.Phase) && !refused {
			out.provided[id] = out.provided[id].plus(nil, offloadingplan.Demand(&pod.Spec.Pod))
		}
	}
	return out
}

func (u use) plus(granted, used corev1.ResourceList) use {
	if u.granted == nil {
		u = use{corev1.ResourceList{}, corev1.ResourceList{}}
	}
	offloadingplan.Add(u.granted, granted)
	offloadingplan.Add(u.used, used)
	return u
}

// providers returns the cluster ID by the name of the virtual node, which the label of its Node holds, too.
func (s *Snapshot) providers() map[string]string {
	out := map[string]string{}
	for _, n := range s.Nodes.Items {
		if id := n.Labels[api.LabelRemoteClusterID]; id != "" {
			out[n.Name] = id
		}
	}
	for _, v := range s.VirtualNodes.Items {
		out[v.Name] = v.Spec.ClusterID
	}
	return out
}

// amounts returns the amounts of a use, without what is used if the kind of pods that use it is hidden.
func (s *Snapshot) amounts(u use, pods string) []Amount {
	out := amounts(u)
	if s.Hidden[pods] != "" {
		for i := range out {
			out[i] = Amount{Name: out[i].Name, Granted: out[i].Granted}
		}
	}
	return out
}

// amounts returns one line for each granted resource: CPU, memory and pods first, others by name.
func amounts(u use) []Amount {
	first := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods}
	rank := func(n corev1.ResourceName) int {
		if i := slices.Index(first, n); i >= 0 {
			return i
		}
		return len(first)
	}
	names := slices.SortedFunc(maps.Keys(u.granted), func(a, b corev1.ResourceName) int {
		return cmp.Or(rank(a)-rank(b), cmp.Compare(a, b))
	})
	var out []Amount
	for _, name := range names {
		granted, used := u.granted[name], u.used[name]
		free := granted.DeepCopy()
		free.Sub(used)
		if free.Sign() < 0 {
			free = resource.Quantity{Format: granted.Format}
		}
		percent := 0
		if g := granted.AsApproximateFloat64(); g > 0 {
			percent = int(max(0, min(100, used.AsApproximateFloat64()*100/g)))
		}
		out = append(out, Amount{Name: string(name), Granted: short(granted), Used: short(used), Free: short(free),
			Percent: percent})
	}
	return out
}

// Amounts returns the resources of a slice as text, such as "cpu 4, memory 8Gi".
func (s Slice) Amounts() string {
	var out []string
	for _, a := range amounts(use{granted: s.Resources}) {
		out = append(out, a.Name+" "+a.Granted)
	}
	return strings.Join(out, ", ")
}

// short returns a quantity with at most one decimal of its largest binary unit, or as it is.
func short(q resource.Quantity) string {
	units := []string{"Ki", "Mi", "Gi", "Ti", "Pi"}
	value := q.AsApproximateFloat64()
	if q.Format != resource.BinarySI || value < 1024 {
		return q.String()
	}
	unit := ""
	for _, u := range units {
		if value < 1024 {
			break
		}
		value, unit = value/1024, u
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", value), ".0") + unit
}
