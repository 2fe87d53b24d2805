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
	// endpointsKnown is no path: a cluster must know the addresses before any is tried.
	endpointsKnown kindOfCheck = "endpoints"
	podToPod       kindOfCheck = "pod → pod"
	podToService   kindOfCheck = "pod → service"
)

// path is a row of the table of checks.
type path struct {
	kind    kindOfCheck
	enabled bool
	// from are the pods that ask; nil = liqoctl.
	from func(site) []string
	// to is what they ask: the to, url and want of checks.
	to func(site) []check
}

// paths are all paths in the order in which they are tried, and which of them the flags ask for.
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
			// As many requests as endpoints, for each connection is led to one of them.
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

// targets are several addresses of one thing.
func targets(to string, port int32, addresses ...string) (out []check) {
	for _, address := range addresses {
		out = append(out, check{to: to, url: webAddress(address, port)})
	}
	return out
}

// checks are the requests on a path, cluster by cluster.
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

// outside is where liqoctl runs.
const outside = "outside"

// site is one cluster as the checks see it.
type site struct {
	id string
	// pods and hosts are where checks start: names of pods, those of hosts in a node's network.
	pods, hosts []string
	// endpoints are the pods of all clusters, under the addresses they have here.
	endpoints []endpoint
	// missing tells which endpoints this cluster should know and does not.
	missing []string
	// nodes are the addresses of this cluster's nodes for its pods, reachable those for others; nodePort is
	// the port of the Service on them.
	nodes, reachable []string
	nodePort         int32
	// balancers are the addresses of the Service's load balancer here.
	balancers []string
	// internet is an external address; remapped are the addresses it has here by way of other clusters.
	internet string
	remapped map[string]string
}

// endpoint is one pod.
type endpoint struct {
	address, cluster string
	// pod is its name; empty when this cluster does not know it.
	pod string
}

// check is one request.
type check struct {
	kind kindOfCheck
	// from is the cluster and pod that asks; outside it is liqoctl.
	from, pod string
	// to is the cluster or thing that is asked.
	to, url string
	// want is the only right answer; empty when any is.
	want string
}

func webAddress(host string, port int32) string {
	return "http://" + net.JoinHostPort(host, strconv.Itoa(int(port))) + "/"
}

// result is what came of a check.
type result struct {
	check
	latency time.Duration
	// failure is empty when it went well.
	failure string
}

// resultOf judges an answer.
func resultOf(c check, a echo.Answer) result {
	out := result{check: c, latency: a.Latency, failure: a.Error}
	if out.failure == "" && c.want != "" && a.Name != c.want {
		out.failure = fmt.Sprintf("%q answered, not %s", a.Name, c.want)
	}
	return out
}

// endpointResults are results, one for each cluster, of whether it knows all endpoints.
func endpointResults(sites []site) []result {
	var out []result
	for _, s := range sites {
		out = append(out, result{check: check{kind: endpointsKnown, from: s.id, to: "all clusters"},
			failure: strings.Join(s.missing, "; ")})
	}
	return out
}

// failures are the results that are none.
func failures(results []result) []result {
	return slices.DeleteFunc(slices.Clone(results), func(r result) bool { return r.failure == "" })
}

// String tells a failure.
func (r result) String() string {
	if r.kind == endpointsKnown {
		return r.failure
	}
	who, isSet := r.pod, r.url
	if r.from == outside {
		who = "liqoctl"
	}
	if r.want != "" {
		isSet += " (" + r.want + ")"
	}
	return fmt.Sprintf("%s: %s to %s of %s: %s", r.kind, who, isSet, r.to, r.failure)
}

// table sums results up: a row for each path between two clusters, in the order of the checks.
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

// median is the latency in the middle, to a tenth of a millisecond.
func median(latencies []time.Duration) string {
	if len(latencies) == 0 {
		return "-"
	}
	slices.Sort(latencies)
	return latencies[len(latencies)/2].Round(100 * time.Microsecond).String()
}

// workers are the nodes on which a pod without tolerations can run.
func workers(nodes []corev1.Node) int32 {
	var out int32
	for _, n := range nodes {
		tainted := slices.ContainsFunc(n.Spec.Taints,
			func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule })
		if realNode(n) && !n.Spec.Unschedulable && !tainted && nodeReady(&n) {
			out++
		}
	}
	return out
}

func realNode(n corev1.Node) bool { return n.Labels[api.LabelType] != api.TypeVirtualNode }

// labelControlPlane marks the nodes of the control plane, as kubeadm does.
const labelControlPlane = "node-role.kubernetes.io/control-plane"

// addressesOf are those of the nodes of a choice of all, workers or control-planes: of each node one, of the
// first kind it has.
func addressesOf(nodes []corev1.Node, choice string, kinds ...corev1.NodeAddressType) []string {
	var out []string
	for _, n := range nodes {
		_, master := n.Labels[labelControlPlane]
		if !realNode(n) || choice == "workers" && master || choice == "control-planes" && !master {
			continue
		}
		if address := addressOf(n, kinds); address != "" {
			out = append(out, address)
		}
	}
	return out
}

// addressOf is a node's address of the first kind it has one of.
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
