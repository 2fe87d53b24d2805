// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/desired"
)

// furtherEntries is the number of nodes whose addresses a server announces besides its own node's.
const furtherEntries = 2

// entryNode returns the name of the active pod's node. Without an active pod, it returns the node of
// the youngest scheduled pod, so that clients start while that pod starts; they dial every second until
// the server answers. It returns "" if no pod has a node.
func (in WgServerInput) entryNode(active *netv1beta1.InternalGatewayEndpoint) string {
	if active != nil {
		return active.Node
	}
	var young corev1.Pod
	for _, p := range in.Pods {
		starts := p.DeletionTimestamp == nil && p.Spec.NodeName != "" && !api.Finished(p.Status.Phase)
		if starts && (young.Name == "" || api.Older(&young, &p)) {
			young = p
		}
	}
	return young.Spec.NodeName
}

// entries returns the addresses for node ports: those of the gateway's node and, if every node
// forwards to its pod, of two more nodes in case the first fails. Announced addresses are kept while
// their nodes exist and one of them is ready, because a client restarts for another address. They are
// also kept while no node at all is ready, as after an outage of the API server.
func (in WgServerInput) entries(node string) []string {
	anywhere := in.Service != nil && in.Service.Spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal
	var known, alive, own, others []string
	further := 0
	nodes := slices.DeleteFunc(slices.Clone(in.Nodes),
		func(n corev1.Node) bool { return n.Labels[api.LabelType] == api.TypeVirtualNode })
	slices.SortFunc(nodes, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for i := range nodes {
		n := &nodes[i]
		addresses := entryAddresses(n)
		known = append(known, addresses...)
		if nodeReady(n) {
			alive = append(alive, addresses...)
		}
		switch {
		case n.Name == node:
			own = addresses
		case anywhere && nodeReady(n) && further < furtherEntries:
			others = append(others, addresses...)
			further++
		}
	}
	if last := in.Root.Status.Endpoint; anywhere && last != nil {
		gone := slices.ContainsFunc(last.Addresses, func(a string) bool { return !slices.Contains(known, a) })
		if !gone && (len(alive) == 0 || slices.ContainsFunc(last.Addresses,
			func(a string) bool { return slices.Contains(alive, a) })) {
			return last.Addresses
		}
	}
	if len(own) == 0 {
		return nil
	}
	return append(own, others...)
}

// nodeReady reports whether a node has no condition that says it is not ready.
func nodeReady(n *corev1.Node) bool {
	return !slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue
	})
}

// entryAddresses returns the addresses by which a node is reached from outside the cluster.
func entryAddresses(n *corev1.Node) []string {
	if external := nodeAddresses(n, corev1.NodeExternalIP); len(external) > 0 {
		return external
	}
	return nodeAddresses(n, corev1.NodeInternalIP)
}

// serverEndpoint returns the endpoint at which clients outside the cluster reach a Service; node
// ports are at the given addresses, and former ones are left out.
func serverEndpoint(s *corev1.Service, entries []string) *netv1beta1.EndpointStatus {
	if s == nil {
		return nil
	}
	ports := slices.DeleteFunc(slices.Clone(s.Spec.Ports), isFormer)
	if len(ports) == 0 {
		return nil
	}
	e := &netv1beta1.EndpointStatus{Protocol: netv1beta1.Protocol(cmp.Or(ports[0].Protocol, corev1.ProtocolUDP))}
	port := func(p corev1.ServicePort) int32 { return p.Port }
	switch s.Spec.Type {
	case corev1.ServiceTypeNodePort:
		port = func(p corev1.ServicePort) int32 { return p.NodePort }
		e.Addresses = entries
	case corev1.ServiceTypeLoadBalancer:
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			e.Addresses = append(e.Addresses, cmp.Or(ingress.IP, ingress.Hostname))
		}
	case corev1.ServiceTypeExternalName:
		e.Addresses = []string{s.Spec.ExternalName}
	default:
		e.Addresses = s.Spec.ClusterIPs
	}
	for _, p := range ports {
		e.Ports = append(e.Ports, port(p))
	}
	if len(e.Addresses) == 0 || slices.Contains(e.Ports, 0) {
		return nil
	}
	if len(e.Ports) == 1 {
		e.Port, e.Ports = e.Ports[0], nil
	}
	return e
}

// endpointPending returns the verdict on a server whose Service has no endpoint yet.
func endpointPending(root desired.Object, s *corev1.Service) desired.Verdict {
	name := api.GatewayServiceName(root.GetName())
	switch {
	case s == nil:
		return desired.Wait("EndpointPending", "Service %s is not there yet", name).Verdict
	case s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.LoadBalancerIP != "":
		return desired.Wait("LoadBalancerPending",
			"Service %s does not get the address %s from a load balancer; ask for one that it may give, or set "+
				"spec.endpoint.serviceType to NodePort", name, s.Spec.LoadBalancerIP).Verdict
	case s.Spec.Type == corev1.ServiceTypeLoadBalancer:
		return desired.Wait("LoadBalancerPending",
			"Service %s has no address from a load balancer; if the cluster has none, set spec.endpoint.serviceType "+
				"to NodePort", name).Verdict
	case s.Spec.Type == corev1.ServiceTypeNodePort &&
		!slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort == 0 }):
		return desired.Wait("EndpointPending",
			"the node of the gateway pod has no address in its status; see 'kubectl get nodes -o wide'").Verdict
	}
	return desired.Wait("EndpointPending", "Service %s has no address or port to be reached by; see 'kubectl -n %s "+
		"describe service %s'", name, root.GetNamespace(), name).Verdict
}
