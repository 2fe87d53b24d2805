// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/internal/await"
	"github.com/liqo-go/liqo/internal/echo"
)

// testOptions holds the flags of test network.
type testOptions struct {
	remotes                                          []string
	basic, ranges, ip, balancer                      bool
	outsideNodePort, podNodePort, removing, failFast bool
	chosenNodes, internet                            string
}

const (
	// endpointsTimeout bounds the wait for endpoints of other clusters: if one of them cannot be
	// reached, the paths to the others are still tested.
	endpointsTimeout = 45 * time.Second
	// attempts is greater than 1 since the last node has the rules of a new Service about a second
	// after its endpoints.
	attempts = 5
	// execAtOnce bounds the pods that try paths at the same time; urlsAtOnce bounds the URLs of one
	// exec request, whose own URL contains them.
	execAtOnce, urlsAtOnce = 8, 100
	// namedFailures is how many failures of a path are printed.
	namedFailures = 20
)

func (e *env) testCommand() *cobra.Command {
	cmd := group("test", "Test the network between clusters")
	o := &testOptions{}
	sub := &cobra.Command{Use: "network", Aliases: []string{"net"},
		Short: "Try every path between the local cluster (consumer) and its providers",
		Example: "  liqoctl test network -p milan.yaml --rm\n" +
			"  liqoctl test network -p milan.yaml,paris.yaml --np-ext --ip",
		RunE: func(cmd *cobra.Command, _ []string) error { return e.testNetwork(cmd, o) }}
	flags := sub.Flags()
	flags.StringSliceVarP(&o.remotes, "remote-kubeconfigs", "p", nil, "Kubeconfigs of the providers")
	addLiqoFlag(flags, "namespace", "n", "")
	flags.BoolVar(&o.basic, "basic", false, "Only from pod to pod")
	flags.BoolVar(&o.ranges, "info", false, "Show first how the clusters see each other's addresses")
	flags.BoolVar(&o.ip, "ip", false,
		"Also from pods to an external address, directly and by way of the other clusters")
	flags.StringVar(&o.internet, "ip-address", "1.1.1.1",
		"The external address for --ip; it must answer HTTP on port 80")
	flags.BoolVar(&o.balancer, "lb", false, "Also from here to load balancers")
	flags.BoolVar(&o.outsideNodePort, "np-ext", false, "Also from here to node ports")
	flags.Var(choice(&o.chosenNodes, "all", "workers", "control-planes"), "np-nodes", "Nodes whose ports are tried")
	flags.BoolVar(&o.podNodePort, "pod-np", false, "Also from pods to node ports of their own cluster")
	flags.BoolVar(&o.removing, "rm", false, "Remove at the end what the test made")
	flags.BoolVar(&o.failFast, "fail-fast", false, "Stop after the first kind of path on which something failed")
	addTimeoutFlag(flags, 5*time.Minute)
	require(sub, "remote-kubeconfigs")
	cmd.AddCommand(sub)
	return cmd
}

// trial is one test of a network. all holds the consumer and its providers.
type trial struct {
	*script
	*testOptions
	consumer *cluster
	all      []*cluster
	nodes    map[string][]corev1.Node
	pods     map[string]trialPods
}

func (e *env) testNetwork(cmd *cobra.Command, o *testOptions) error {
	if _, err := netip.ParseAddr(o.internet); err != nil {
		return fmt.Errorf("--ip-address: %q is not an address", o.internet)
	}
	s, stop := e.scriptOf(cmd)
	defer stop()
	t := &trial{script: s, testOptions: o, nodes: map[string][]corev1.Node{}, pods: map[string]trialPods{}}
	if err := t.connect(e, liqoFlag(cmd)); err != nil {
		return err
	}
	err := t.run()
	if !o.removing {
		s.info(noCluster, "What the test made stays in namespace %s, for the next run; --rm removes it", trialNamespace)
		return err
	}
	// This happens also after an interrupt. A second one ends liqoctl, and the next run continues
	// the removal.
	last, done := e.newScript(context.WithoutCancel(cmd.Context()), s.timeout)
	defer done()
	t.script = last
	if failed := t.remove(); err == nil {
		err = failed
	} else if failed != nil {
		e.erro(noCluster, failed)
	}
	return err
}

// connect connects to all clusters. Afterwards lines about a cluster begin with its ID.
func (t *trial) connect(e *env, liqo *pflag.Flag) (err error) {
	if t.consumer, err = e.cluster(e.local, local, liqo.Value.String()); err != nil {
		return err
	}
	t.all = []*cluster{t.consumer}
	for _, path := range t.remotes {
		flags := access{genericclioptions.NewConfigFlags(true), []string{"--remote-kubeconfigs"}}
		flags.KubeConfig = &path
		c, err := e.cluster(flags, remote, liqo.Value.String())
		if err != nil {
			return err
		}
		t.all = append(t.all, c)
	}
	t.busy(noCluster, "Contacting the clusters")
	defer t.clearBusy()
	if err := onEach(t.all, func(c *cluster) error { return c.identify(t.ctx, liqo) }); err != nil {
		return err
	}
	ids := map[string]bool{}
	for _, c := range t.all {
		if ids[c.id] {
			return fmt.Errorf("several kubeconfigs lead to a cluster with the ID %q; give each provider once", c.id)
		}
		ids[c.id], c.side = true, side(c.id)
	}
	return nil
}

func (t *trial) providers() []*cluster { return t.all[1:] }

// run creates the objects and tries all paths.
func (t *trial) run() error {
	t.busy(noCluster, "Reading the nodes")
	if err := t.readNodes(); err != nil {
		return err
	}
	if t.ranges {
		if err := t.showRanges(); err != nil {
			return err
		}
	}
	if err := t.prepare(); err != nil {
		return err
	}
	sites, err := t.sites()
	if err != nil {
		return err
	}
	return t.runChecks(sites)
}

// endpoints waits until a cluster has the endpoints of all pods. After endpointsTimeout it returns
// which are missing.
func (t *trial) endpoints(c *cluster, service string) (out []endpoint, missing string, err error) {
	ctx, cancel := context.WithTimeoutCause(t.ctx, endpointsTimeout, errTimeout)
	defer cancel()
	pods := 0
	for _, p := range t.pods {
		pods += int(p.replicas)
	}
	err = c.follow(ctx, &discoveryv1.EndpointSliceList{}, func(have await.Objects) bool {
		out = endpointsIn(have)
		return len(out) == pods
	}, client.InNamespace(trialNamespace), client.MatchingLabels{discoveryv1.LabelServiceName: service})
	if errors.Is(err, errTimeout) && t.ctx.Err() == nil {
		return out, fmt.Sprintf("the EndpointSlices of service %s/%s list %d of %d endpoints; see '%s info peer', "+
			"and the events of 'kubectl -n %[1]s describe endpointslices' in %s",
			trialNamespace, service, len(out), pods, c.env.name, t.consumer.id), nil
	}
	return out, "", err
}

// endpointsIn returns the ready endpoints of EndpointSlices.
func endpointsIn(slicesOf await.Objects) []endpoint {
	var out []endpoint
	for _, item := range slicesOf.Sorted() {
		for _, e := range item.(*discoveryv1.EndpointSlice).Endpoints {
			if ptr.Deref(e.Conditions.Ready, true) && len(e.Addresses) > 0 {
				out = append(out, endpoint{address: e.Addresses[0], cluster: ptr.Deref(e.Hostname, ""),
					pod: ptr.Deref(e.TargetRef, corev1.ObjectReference{}).Name})
			}
		}
	}
	return out
}

// sites waits until the clusters are ready for the checks and returns their addresses.
func (t *trial) sites() ([]site, error) {
	t.busy(noCluster, "Waiting until all clusters know the endpoints of all pods")
	out, err := collect(t.all, t.site)
	if err != nil {
		return nil, err
	}
	if t.ip && !t.basic {
		if err := t.addRemapped(out); err != nil {
			return nil, err
		}
	}
	if slices.ContainsFunc(out, func(s site) bool { return len(s.missing) > 0 }) {
		return out, nil
	}
	t.info(noCluster, "All clusters know the endpoints of all pods")
	return out, nil
}

func (t *trial) site(c *cluster) (out site, err error) {
	out = site{id: c.id, internet: t.internet, remapped: map[string]string{}}
	out.nodes = addressesOf(t.nodes[c.id], t.chosenNodes, corev1.NodeInternalIP, corev1.NodeExternalIP)
	out.reachable = addressesOf(t.nodes[c.id], t.chosenNodes, corev1.NodeExternalIP, corev1.NodeInternalIP)
	if out.pods, err = t.podsOf(c, trialApp); err != nil {
		return out, err
	}
	missing := ""
	if out.endpoints, missing, err = t.endpoints(c, trialApp); err != nil {
		return out, err
	}
	if missing != "" {
		out.missing = append(out.missing, missing)
	}
	if t.basic {
		return out, nil
	}
	if out.hosts, err = t.podsOf(c, trialHostApp); err != nil {
		return out, err
	}
	if t.podNodePort || t.outsideNodePort {
		service := trialService(trialNodePort, corev1.ServiceTypeNodePort)
		if err := c.await(t.ctx, service, func() bool { return service.Spec.Ports[0].NodePort != 0 }); err != nil {
			return out, err
		}
		out.nodePort = service.Spec.Ports[0].NodePort
	}
	if t.balancer {
		out.balancers, err = t.balancersOf(c)
	}
	return out, err
}

// podsOf returns the names of a cluster's own pods.
func (t *trial) podsOf(c *cluster, app string) ([]string, error) {
	found, err := c.all(t.ctx, &corev1.PodList{}, client.InNamespace(trialNamespace),
		client.MatchingLabels{labelTrialApp: app, labelTrialCluster: c.id})
	found = slices.DeleteFunc(found, func(pod client.Object) bool { return pod.GetDeletionTimestamp() != nil })
	return textsOf(found, client.Object.GetName), err
}

func (t *trial) balancersOf(c *cluster) ([]string, error) {
	service := trialService(trialBalancer, corev1.ServiceTypeLoadBalancer)
	var out []string
	err := c.await(t.ctx, service, func() bool {
		out = nil
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			out = append(out, cmp.Or(ingress.IP, ingress.Hostname))
		}
		return len(out) > 0
	})
	return out, err
}

// addRemapped adds the addresses by which each cluster reaches the external address through its
// peers.
func (t *trial) addRemapped(sites []site) error {
	for _, by := range t.all {
		ip := trialAddress(t.internet)
		if err := by.await(t.ctx, ip, func() bool { return ip.Status.IP != "" }); err != nil {
			return err
		}
		for i, c := range t.all {
			configurations := &netv1beta1.ConfigurationList{}
			if err := c.listOf(t.ctx, everywhere, by.id, configurations); err != nil {
				return err
			}
			if address, ok := toLocal(configurations.Items, ip.Status.IP); ok {
				sites[i].remapped[by.id] = address.String()
			}
		}
	}
	return nil
}

// runChecks runs the checks, path by path, and prints the results.
func (t *trial) runChecks(sites []site) error {
	results := endpointResults(sites)
	t.report(endpointsKnown, len(results), failures(results))
	for _, p := range paths(t.testOptions) {
		if t.failFast && len(failures(results)) > 0 {
			break
		}
		of := p.checks(sites)
		if !p.enabled || len(of) == 0 {
			continue
		}
		t.busy(noCluster, fmt.Sprintf("Trying %s, %d requests", p.kind, len(of)))
		tried := t.runAll(of)
		t.clearBusy()
		if err := context.Cause(t.ctx); err != nil {
			return err
		}
		results = append(results, tried...)
		t.report(p.kind, len(of), failures(tried))
	}
	if err := table(t.consumer.env.Out, results); err != nil {
		return err
	}
	if len(failures(results)) > 0 {
		return errors.New("some checks failed")
	}
	return nil
}

// report prints the outcome of one kind of path.
func (t *trial) report(kind kindOfCheck, requests int, failed []result) {
	for i, r := range failed {
		if i == namedFailures {
			t.warn(noCluster, "and %d more", len(failed)-i)
			break
		}
		t.erro(side(r.from), errors.New(r.String()))
	}
	if len(failed) == 0 && kind != endpointsKnown {
		t.info(noCluster, "%s: all of %d requests succeeded", kind, requests)
	}
}

// runAll runs checks concurrently, those of one pod in one request. The results are in the order of
// the checks.
func (t *trial) runAll(all []check) []result {
	out := make([]result, len(all))
	free := make(chan struct{}, execAtOnce)
	var running sync.WaitGroup
	for begin := 0; begin < len(all); {
		end := begin + 1
		for end < len(all) && end-begin < urlsAtOnce && all[end].from == all[begin].from &&
			all[end].pod == all[begin].pod {
			end++
		}
		part, into := all[begin:end], out[begin:end]
		running.Go(func() {
			free <- struct{}{}
			for i, answer := range t.request(part) {
				into[i] = resultOf(part[i], answer)
			}
			<-free
		})
		begin = end
	}
	running.Wait()
	return out
}

// request lets one pod, or liqoctl itself, send requests to all addresses.
func (t *trial) request(all []check) []echo.Answer {
	var urls []string
	for _, c := range all {
		urls = append(urls, c.url)
	}
	if all[0].from == outside {
		return echo.GetAll(t.ctx, urls, attempts)
	}
	at := t.all[slices.IndexFunc(t.all, func(c *cluster) bool { return c.id == all[0].from })]
	output, err := at.exec(t.ctx, trialNamespace, all[0].pod,
		append([]string{"liqo", "echo", "get", fmt.Sprintf("--attempts=%d", attempts)}, urls...)...)
	out := make([]echo.Answer, len(all))
	lines := json.NewDecoder(bytes.NewReader(output))
	for i := range out {
		if lines.Decode(&out[i]) != nil {
			out[i] = echo.Answer{URL: urls[i], Error: "not tried"}
			if err != nil {
				out[i].Error = oneLine(err.Error())
			}
		}
	}
	return out
}

// showRanges prints the ranges by which the clusters reach each other.
func (t *trial) showRanges() error {
	for _, c := range t.all {
		configurations := &netv1beta1.ConfigurationList{}
		if err := c.list(t.ctx, configurations); err != nil {
			return err
		}
		var content lines
		for _, k := range configurations.Items {
			content.text(0, k.Labels[api.LabelRemoteClusterID])
			if k.Spec.Remote == nil || k.Status.Remote == nil {
				content.text(1, "not known yet")
				continue
			}
			content.add(1, "Pods", remappedTo(k.Spec.Remote.CIDR.Pod, k.Mappings()))
			content.add(1, "External", remappedTo(k.Spec.Remote.CIDR.External, k.Mappings()))
		}
		fmt.Fprint(c.env.Out, box("Peers as "+c.id+" sees them", content))
	}
	return nil
}

// remappedTo returns the peer's ranges, each with the range it is remapped to, or that it is not
// mapped yet.
func remappedTo(remote []string, mappings netv1beta1.Mappings) string {
	var out []string
	for _, r := range remote {
		p, _ := netip.ParsePrefix(r)
		i := slices.IndexFunc(mappings, func(m netv1beta1.Mapping) bool { return m.Remote == p.Masked() })
		switch {
		case i < 0:
			r += " not yet"
		case mappings[i].Local.String() != r:
			r += " as " + mappings[i].Local.String()
		}
		out = append(out, r)
	}
	return strings.Join(out, ", ")
}
