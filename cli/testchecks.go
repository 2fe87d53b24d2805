// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
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

// The paths, in the order in which they are tried.
const (
	// endpointsKnown is no path: a cluster must know the addresses before any is tried.
	endpointsKnown  kindOfCheck = "endpoints"
	podToPod        kindOfCheck = "pod → pod"
	podToService    kindOfCheck = "pod → service"
	nodeToPod       kindOfCheck = "node → pod"
	podToNodePort   kindOfCheck = "pod → node port"
	outsideNodePort kindOfCheck = "outside → node port"
	outsideBalancer kindOfCheck = "outside → load balancer"
	podToInternet   kindOfCheck = "pod → internet"
	podToRemapped   kindOfCheck = "pod → remapped address"
)

func kindsOfChecks() []kindOfCheck {
	return []kindOfCheck{podToPod, podToService, nodeToPod, podToNodePort, outsideNodePort, outsideBalancer, podToInternet, podToRemapped}
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

// checks are all requests the options ask for, by path and by cluster.
func checks(sites []site, o *testOptions) []check {
	var out []check
	for _, s := range sites {
		out = append(out, s.checks(o)...)
	}
	slices.SortStableFunc(out, func(a, b check) int {
		return cmp.Compare(slices.Index(kindsOfChecks(), a.kind), slices.Index(kindsOfChecks(), b.kind))
	})
	return out
}

func (s site) checks(o *testOptions) []check {
	var out []check
	from := func(pods []string, add func(from check)) {
		for _, pod := range pods {
			add(check{from: s.id, pod: pod})
		}
	}
	toPods := func(kind kindOfCheck) func(check) {
		return func(c check) {
			for _, e := range s.endpoints {
				c.kind, c.to, c.url, c.want = kind, e.cluster, webAddress(e.address, echo.Port), e.pod
				out = append(out, c)
			}
		}
	}
	to := func(kind kindOfCheck, to string, addresses []string, port int32) func(check) {
		return func(c check) {
			for _, address := range addresses {
				c.kind, c.to, c.url = kind, to, webAddress(address, port)
				out = append(out, c)
			}
		}
	}
	liqoctl := func(add func(check)) { add(check{from: outside}) }
	from(s.pods, toPods(podToPod))
	if o.basic {
		return out
	}
	// As many requests as endpoints, for each connection is led to one of them.
	service := slices.Repeat([]string{trialApp + "." + trialNamespace + ".svc"}, len(s.endpoints))
	from(s.pods, to(podToService, "service", service, trialServicePort))
	from(s.hosts, toPods(nodeToPod))
	if o.podNodePort {
		from(s.pods, to(podToNodePort, s.id, s.nodes, s.nodePort))
	}
	if o.outsideNodePort {
		liqoctl(to(outsideNodePort, s.id, s.reachable, s.nodePort))
	}
	if o.balancer {
		liqoctl(to(outsideBalancer, s.id, s.balancers, trialServicePort))
	}
	if o.ip {
		from(s.pods, to(podToInternet, "internet", []string{s.internet}, trialServicePort))
		for _, peer := range slices.Sorted(maps.Keys(s.remapped)) {
			from(s.pods, to(podToRemapped, "internet by "+peer, []string{s.remapped[peer]}, trialServicePort))
		}
	}
	return out
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

// known are results, one for each cluster, of whether it knows all endpoints.
func known(sites []site) []result {
	var out []result
	for _, s := range sites {
		out = append(out, result{check: check{kind: endpointsKnown, from: s.id, to: "all clusters"}, failure: strings.Join(s.missing, "; ")})
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
	who, asked := r.pod, r.url
	if r.from == outside {
		who = "liqoctl"
	}
	if r.want != "" {
		asked += " (" + r.want + ")"
	}
	return fmt.Sprintf("%s: %s to %s of %s: %s", r.kind, who, asked, r.to, r.failure)
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
		fmt.Fprintf(out, "%s\t%s\t%s\t%d/%d\t%s\n", key.kind, api.Printable(key.from), api.Printable(key.to), ok, len(all[key]), median(latencies))
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
		tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule })
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
