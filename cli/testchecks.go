// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqo-go/liqo/api"
	"github.com/liqo-go/liqo/internal/echo"
)

// kindOfCheck is a path through the network.
type kindOfCheck string

const (
	// endpointsKnown is not a path: a cluster must have all endpoints before paths are tried.
	endpointsKnown kindOfCheck = "endpoints"
	podToPod       kindOfCheck = "pod → pod"
	podToService   kindOfCheck = "pod → service"
)

// path is a row of the table of checks.
type path struct {
	kind    kindOfCheck
	enabled bool
	// from returns the pods that send requests; nil = liqoctl.
	from func(site) []string
	// to returns the targets: the to, url and want of checks.
	to func(site) []check
}

// paths returns all paths in the order in which they are tried, and whether the flags enable them.
func paths(o *testOptions) []path {
	full := !o.basic
	pods := func(s site) []string { return s.pods }
	hosts := func(s site) []string { return s.hosts }
	endpoints := func(s site) (out []check) {
		for _, e := range s.endpoints {
			out = append(out, check{to: e.cluster, url: webAddress(e.address, echo.Port), want: e.pod})
		}
		return out
	}
	return []path{
		{podToPod, true, pods, endpoints},
		{podToService, full, pods, func(s site) []check {
			// As many requests as endpoints, since each connection goes to one of them.
			names := slices.Repeat([]string{trialApp + "." + trialNamespace + ".svc"}, len(s.endpoints))
			return targets("service", trialServicePort, names...)
		}},
		{"node → pod", full, hosts, endpoints},
		{"pod → node port", full && o.podNodePort, pods,
			func(s site) []check { return targets(s.id, s.nodePort, s.nodes...) }},
		{"outside → node port", full && o.outsideNodePort, nil,
			func(s site) []check { return targets(s.id, s.nodePort, s.reachable...) }},
		{"outside → load balancer", full && o.balancer, nil,
			func(s site) []check { return targets(s.id, trialServicePort, s.balancers...) }},
		{"pod → internet", full && o.ip, pods,
			func(s site) []check { return targets("internet", trialServicePort, s.internet) }},
		{"pod → remapped address", full && o.ip, pods, func(s site) (out []check) {
			for _, peer := range slices.Sorted(maps.Keys(s.remapped)) {
				out = append(out, targets("internet by "+peer, trialServicePort, s.remapped[peer])...)
			}
			return out
		}},
	}
}

// targets returns checks of several addresses of one target.
func targets(to string, port int32, addresses ...string) (out []check) {
	for _, address := range addresses {
		out = append(out, check{to: to, url: webAddress(address, port)})
	}
	return out
}

// checks returns the requests on a path, cluster by cluster.
func (p path) checks(sites []site) (out []check) {
	for _, s := range sites {
		from, pods := outside, []string{""}
		if p.from != nil {
			from, pods = s.id, p.from(s)
		}
		for _, pod := range pods {
			for _, c := range p.to(s) {
				c.kind, c.from, c.pod = p.kind, from, pod
				out = append(out, c)
			}
		}
	}
	return out
}

// outside is the source of requests by liqoctl.
const outside = "outside"

// site describes one cluster for the checks.
type site struct {
	id string
	// pods and hosts name the pods that send requests; hosts are in the network of their node.
	pods, hosts []string
	// endpoints holds the pods of all clusters, with their addresses in this cluster.
	endpoints []endpoint
	// missing says which endpoints this cluster lacks.
	missing []string
	// nodes holds the addresses of this cluster's nodes for its pods, reachable those for others;
	// nodePort is the port of the Service on them.
	nodes, reachable []string
	nodePort         int32
	// balancers holds the addresses of the Service's load balancer in this cluster.
	balancers []string
	// internet is an external address; remapped holds its addresses through other clusters, by
	// their ID.
	internet string
	remapped map[string]string
}

// endpoint is one pod.
type endpoint struct {
	address, cluster string
	// pod is its name; empty if the EndpointSlice does not tell it.
	pod string
}

// check is one request.
type check struct {
	kind kindOfCheck
	// from is the ID of the cluster of the pod that sends the request, or outside.
	from, pod string
	// to is the cluster or other target of the request.
	to, url string
	// want is the name of the pod that must answer; empty if any may.
	want string
}

func webAddress(host string, port int32) string {
	return "http://" + net.JoinHostPort(host, strconv.Itoa(int(port))) + "/"
}

// result is the outcome of a check.
type result struct {
	check
	latency time.Duration
	// failure is empty after success.
	failure string
}

// resultOf compares an answer with the check.
func resultOf(c check, a echo.Answer) result {
	out := result{check: c, latency: a.Latency, failure: a.Error}
	if out.failure == "" && c.want != "" && a.Name != c.want {
		out.failure = fmt.Sprintf("%q answered, not %s", a.Name, c.want)
	}
	return out
}

// endpointResults returns for each cluster whether it has all endpoints.
func endpointResults(sites []site) []result {
	var out []result
	for _, s := range sites {
		out = append(out, result{check: check{kind: endpointsKnown, from: s.id, to: "all clusters"},
			failure: strings.Join(s.missing, "; ")})
	}
	return out
}

// failures returns the results with a failure.
func failures(results []result) []result {
	return slices.DeleteFunc(slices.Clone(results), func(r result) bool { return r.failure == "" })
}

// String returns the message about a failure.
func (r result) String() string {
	if r.kind == endpointsKnown {
		return r.failure
	}
	who, target := r.pod, r.url
	if r.from == outside {
		who = "liqoctl"
	}
	if r.want != "" {
		target += " (" + r.want + ")"
	}
	return fmt.Sprintf("%s: %s to %s of %s: %s", r.kind, who, target, r.to, r.failure)
}

// table prints a row for each path between two clusters, in the order of the checks.
func table(w io.Writer, results []result) error {
	type row struct {
		kind     kindOfCheck
		from, to string
	}
	var order []row
	all := map[row][]result{}
	for _, r := range results {
		key := row{r.kind, r.from, r.to}
		if all[key] == nil {
			order = append(order, key)
		}
		all[key] = append(all[key], r)
	}
	out := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "CHECK\tFROM\tTO\tOK\tLATENCY")
	for _, key := range order {
		var latencies []time.Duration
		ok := 0
		for _, r := range all[key] {
			if r.failure != "" {
				continue
			}
			if ok++; r.latency > 0 {
				latencies = append(latencies, r.latency)
			}
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%d/%d\t%s\n", key.kind, api.Printable(key.from), api.Printable(key.to), ok,
			len(all[key]), median(latencies))
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}

// median returns the median latency, rounded to a tenth of a millisecond.
func median(latencies []time.Duration) string {
	if len(latencies) == 0 {
		return "-"
	}
	slices.Sort(latencies)
	return latencies[len(latencies)/2].Round(100 * time.Microsecond).String()
}

// workers counts the nodes on which a pod without tolerations can run.
func workers(nodes []corev1.Node) int32 {
	var out int32
	for _, n := range nodes {
		tainted := slices.ContainsFunc(n.Spec.Taints,
			func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule })
		if isRealNode(n) && !n.Spec.Unschedulable && !tainted && api.NodeReady(&n) {
			out++
		}
	}
	return out
}

func isRealNode(n corev1.Node) bool { return n.Labels[api.LabelType] != api.TypeVirtualNode }

// labelControlPlane marks the nodes of the control plane, as kubeadm does.
const labelControlPlane = "node-role.kubernetes.io/control-plane"

// addressesOf returns one address of each chosen node, of the first kind that it has. choice is
// all, workers or control-planes.
func addressesOf(nodes []corev1.Node, choice string, kinds ...corev1.NodeAddressType) []string {
	var out []string
	for _, n := range nodes {
		_, master := n.Labels[labelControlPlane]
		if !isRealNode(n) || choice == "workers" && master || choice == "control-planes" && !master {
			continue
		}
		if address := addressOf(n, kinds); address != "" {
			out = append(out, address)
		}
	}
	return out
}

// addressOf returns a node's address of the first kind that it has.
func addressOf(n corev1.Node, kinds []corev1.NodeAddressType) string {
	for _, kind := range kinds {
		for _, address := range n.Status.Addresses {
			if address.Type == kind {
				return address.Address
			}
		}
	}
	return ""
}
