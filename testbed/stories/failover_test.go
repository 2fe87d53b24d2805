// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/liqo-go/liqo/internal/patience"
)

// fault takes away the gateway that has the tunnel, and returns when another has it.
type fault struct {
	claim string
	// most is the longest time without an answer to a ping every 10 ms.
	most   time.Duration
	happen func(t *testing.T)
}

// planned is the longest gap of a move somebody planned. On a busy machine one may be longer: then it is made twice
// more, and the median counts.
const planned = 300 * time.Millisecond

// machine holds delays that this machine causes by itself, measured in the same run. Clusters, tunnels and tests share
// its processors, so on a slow machine every packet and every process waits for them. Other work comes and goes, so a
// move that was slow has it measured again.
type machine struct {
	// gap is the longest time between two answers to pings while nodes are drained and no gateway moves.
	gap time.Duration
	// restart is the time a container takes to run again after its process was killed.
	restart time.Duration
}

// maxGap returns the longest gap that a fault may cause: its own bound, and what this machine adds by itself. A short gap
// comes on top of the longest one without any move. A long gap takes at most three restarts of a container: the
// container starts, gets ready, and nodes route to it again.
func (m machine) maxGap(f fault) time.Duration {
	if f.most <= late {
		return f.most + m.gap
	}
	return max(f.most, 3*m.restart)
}

// plainPod has no traffic that is measured.
const plainPod = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: plain}
spec:
  selector: {matchLabels: {app: plain}}
  template:
    metadata: {labels: {app: plain}}
    spec:
      containers: [{name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never, args: [serve, -http, ":8080"]}]
`

// thisMachine measures the machine at this moment.
func thisMachine(t *testing.T) machine {
	t.Helper()
	m := machine{gap: gapBeside(t), restart: restartTime(t)}
	t.Logf("this machine, without any move of a gateway: the longest gap is %v, a container restarts in %v", m.gap, m.restart)
	return m
}

// gapBeside drains the node without a gateway that has the tunnel, in each cluster, and returns the longest gap.
func gapBeside(t *testing.T) (gap time.Duration) {
	t.Helper()
	for _, c := range []cluster{rome, milan} {
		beside := c.name + "-n1"
		before := activeGateway(t, c)
		if before.node == beside {
			beside = c.name + "-n2"
		}
		gap = max(gap, pinged(t, func() { c.drain(t, beside) }).gap)
		c.kubectl(t, "uncordon", beside)
		c.kubectl(t, "wait", "deployment", "-A", "--all", "--for=condition=Available", patiently)
		c.rolled(t)
		if now := activeGateway(t, c); now != before {
			t.Fatalf("the tunnel of %s moved from %v to %v", c.name, before, now)
		}
	}
	return gap
}

// restartTime kills the process of a pod and returns the time until its container runs again.
func restartTime(t *testing.T) time.Duration {
	t.Helper()
	milan.apply(t, plainPod)
	milan.kubectl(t, "rollout", "status", "deployment/plain", patiently)
	fields := strings.Fields(milan.kubectl(t, "get", "pods", "-l", "app=plain", "--field-selector", "status.phase=Running",
		"-o", "jsonpath={.items[0].metadata.name} {.items[0].spec.nodeName}"))
	ran := milan.restarts(t, "default", fields[0])
	began := time.Now()
	if out, err := testbed("exec", milan.name, strings.TrimPrefix(fields[1], milan.name+"-"), "--", "pkill", "-KILL", "-x", "-f", "/echo serve -http :8080"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "a plain pod runs again", func() (string, bool) {
		now := milan.restarts(t, "default", fields[0])
		return fmt.Sprint(now), now > ran
	})
	took := time.Since(began)
	milan.kubectl(t, "delete", "deployment/plain")
	return took
}

// late is the longest gap of a fault that loses no packet. When API servers are back, all programs of all nodes send
// requests at once and use the machine's processors for a second or two, so answers are late.
const late = time.Second

// gatewaysAreReplaced takes away gateways in every way, on either side, first with one replica and
// then with two, while pods of both clusters talk. Established connections survive, and each cluster sees
// the other by the same addresses as before, also after its controllers began anew. Usual runs try a sample of
// the faults. A node that was killed takes minutes to come back, so nodes are lost in full runs only.
func gatewaysAreReplaced(t *testing.T) {
	one := []fault{
		{"the server's pod is deleted", 3 * time.Second, deleteGateway(milan)},
		{"the client's pod is deleted", 3 * time.Second, deleteGateway(rome)},
		{"both API servers are away", late, freezeAPIServers(rome, milan)},
		{"the client's pod is deleted while the kubelet of the server's node hangs", 3 * time.Second, kubeletHangs(milan, deleteGateway(rome))},
	}
	two := []fault{
		{"the servers are rolled", planned, rollGateways(milan)},
		{"the clients are rolled", planned, rollGateways(rome)},
		{"the server's pod is killed", 3 * time.Second, deleteGateway(milan, "--grace-period=0", "--force")},
		{"the client's pod is killed", 3 * time.Second, deleteGateway(rome, "--grace-period=0", "--force")},
		{"the server crashes", 3 * time.Second, crashGateway(milan)},
		{"the client crashes", 3 * time.Second, crashGateway(rome)},
		{"the consumer's API server is away", late, freezeAPIServers(rome)},
		{"the server's node is drained", planned, drainGatewayNode(milan)},
		{"the client's node is drained", planned, drainGatewayNode(rome)},
	}
	if *soak {
		two = append(two,
			fault{"the client's node is killed, with the controller", 6 * time.Second, killGatewayNode(rome)},
			fault{"the server's node is killed, with the controller", 6 * time.Second, killGatewayNode(milan)})
	}
	views := func() (all string) {
		for _, c := range []cluster{rome, milan} {
			all += c.kubectl(t, "get", "configurations", "-A", "-o", "jsonpath={.items[*].status.remote}")
		}
		return all
	}
	before := views()
	m := thisMachine(t)
	for _, f := range sampled(t, 2, one) {
		t.Run(f.claim, func(t *testing.T) { f.measure(t, &m) })
	}
	replicate(t, 2)
	for _, f := range sampled(t, 4, two) {
		t.Run(f.claim, func(t *testing.T) { f.measure(t, &m) })
	}
	replicate(t, 1)
	if after := views(); after != before {
		t.Errorf("the clusters saw each other as\n%s\nand see each other as\n%s", before, after)
	}
}

// attempt is what one fault caused.
type attempt struct {
	pings
	// most is the longest gap that the fault may cause on this machine at this time.
	most time.Duration
}

// measure pings, and keeps a connection, while the fault happens. If the gap is longer than the machine explained when it
// was measured last, it is measured again: it may have become slower. The figures hold for the next attempt, too.
func (f fault) measure(t *testing.T, m *machine) {
	t.Helper()
	stays := connected(t)
	var all []attempt
	excess := func(a attempt) time.Duration { return a.gap - a.most }
	for len(all) == 0 || f.most == planned && excess(all[0]) > 0 && len(all) < 3 {
		a := attempt{most: m.maxGap(f)}
		if !t.Run(fmt.Sprint(len(all)+1), func(t *testing.T) { a.pings = pinged(t, func() { f.happen(t) }) }) {
			return
		}
		if excess(a) > 0 {
			*m = thisMachine(t)
			a.most = max(a.most, m.maxGap(f))
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b attempt) int { return cmp.Compare(excess(a), excess(b)) })
	for _, a := range all {
		t.Logf("%s: the longest gap is %v of %v, %d pings are lost", f.claim, a.gap, a.most, a.lost)
	}
	if a := all[len(all)/2]; excess(a) > 0 {
		t.Errorf("%s: the longest gap is %v, more than %v", f.claim, a.gap, a.most)
	}
	for _, a := range all {
		if f.most == late && a.lost > 0 {
			t.Errorf("%s: %d pings are lost", f.claim, a.lost)
		}
	}
	stays(f.claim)
}

// pings are what came of pings every 10 ms.
type pings struct {
	// gap is the longest time between two answers.
	gap time.Duration
	// lost is how many were not answered though a later one was.
	lost int
}

// pinged pings from a pod of rome to a pod of milan, from before f until 3 s after it, for a gap that
// begins late, as of the pod that ends. Both pods are on nodes without a gateway that has the tunnel.
// What is not answered again fails.
func pinged(t *testing.T, f func()) (p pings) {
	t.Helper()
	node, target := source(t)
	fromProbe := func(command string) (string, error) {
		return testbed("exec", rome.name, node, "--", "sh", "-c", `exec nsenter -t "$(pgrep -o -x -f /echo)" -n `+command+" "+target)
	}
	answered := func() {
		t.Helper()
		eventually(t, "a ping is answered", func() (string, bool) { out, err := fromProbe("ping -c 1 -W 1"); return out, err == nil })
	}
	answered()
	done := make(chan string)
	go func() {
		out, _ := fromProbe("-m /echo ping -n 0 -i 10ms") // ended below, or read as no answer
		done <- out
	}()
	eventually(t, "pings are sent", func() (string, bool) {
		out, err := testbed("exec", rome.name, node, "--", "pgrep", "-f", "^/echo ping ")
		return out, err == nil
	})
	f()
	answered()
	if out, err := fromProbe("-m /echo ping -n 300 -i 10ms"); err != nil {
		t.Errorf("pings after the fault: %v\n%s", err, out)
	}
	if out, err := testbed("exec", rome.name, node, "--", "pkill", "-INT", "-f", "^/echo ping "); err != nil {
		t.Fatalf("end the pings: %v\n%s", err, out)
	}
	out := <-done
	found := theirPings.FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("no ping was answered:\n%s", out)
	}
	var err error
	if p.lost, err = strconv.Atoi(found[1]); err != nil {
		t.Fatal(err)
	}
	if p.gap, err = time.ParseDuration(found[2]); err != nil {
		t.Fatal(err)
	}
	return p
}

// theirPings is what the probe prints of its pings.
var theirPings = regexp.MustCompile(` answered, (\d+) lost, longest gap (\S+)`)

// source is a node of rome to ping from, and an address at milan: beside those of the gateways.
func source(t *testing.T) (node, target string) {
	t.Helper()
	at := activeGateway(t, rome)
	node = "n1"
	if at.node == rome.name+"-n1" {
		node = "n2"
	}
	at = activeGateway(t, milan)
	target = milan.kubectl(t, "get", "pods", "-l", "app=probe", "--field-selector", "spec.nodeName!="+at.node, "-o", "jsonpath={.items[0].status.podIP}")
	return node, remapped(t, rome, milan, []string{target})[0]
}

// connected opens a TCP connection between two pods and returns a function that expects it to stand
// and to have carried everything, however late.
func connected(t *testing.T) (stays func(claim string)) {
	t.Helper()
	node, target := source(t)
	result := make(chan string, 1)
	go func() {
		// Not by kubectl, whose stream goes with the API server.
		out, err := testbed("exec", rome.name, node, "--", "sh", "-c",
			`exec nsenter -t "$(pgrep -o -x -f /echo)" -n -m /echo tcp -n 0 -i 50ms -timeout `+patience.Limit.String()+" "+target+":9000")
		result <- fmt.Sprintf("%s%v", out, err)
	}()
	return func(claim string) {
		t.Helper()
		if out, err := testbed("exec", rome.name, node, "--", "pkill", "-INT", "-f", "^/echo tcp "); err != nil {
			t.Errorf("%s: a connection from pod to pod ended: %v\n%s", claim, err, out)
		}
		if out := <-result; strings.Contains(out, "FAILED") || !strings.Contains(out, " 0 failed") {
			failed := regexp.MustCompile("(?m)^.* FAILED .*$").FindString(out)
			t.Errorf("%s: a connection from pod to pod failed:\n%s\n%s", claim, failed, out[max(0, len(out)-500):])
		}
	}
}

// gatewayPod is a pod of a gateway and its node.
type gatewayPod struct{ name, node string }

// activeGateway is the pod nodes are led to.
func activeGateway(t *testing.T, c cluster) gatewayPod {
	t.Helper()
	ns := "/namespaces/liqo-tenant-" + other(c).name
	var active gatewayPod
	eventually(t, "active gateway of "+c.name, func() (string, bool) {
		var fabrics struct {
			Items []struct{ Spec struct{ GatewayIP string } }
		}
		var pods podList
		if err := errors.Join(
			c.read("/apis/networking.liqo.io/v1beta1"+ns+"/internalfabrics", &fabrics),
			c.read("/api/v1"+ns+"/pods?labelSelector=networking.liqo.io/component%3Dgateway", &pods),
		); err != nil {
			return err.Error(), false
		}
		for _, p := range pods.Items {
			if len(fabrics.Items) > 0 && p.Status.PodIP == fabrics.Items[0].Spec.GatewayIP {
				active = gatewayPod{p.Metadata.Name, p.Spec.NodeName}
				return "", true
			}
		}
		return fmt.Sprintf("%+v, %+v", fabrics, pods), false
	})
	return active
}

// podList is what is read of pods.
type podList struct {
	Items []struct {
		Metadata struct{ Name string }
		Spec     struct{ NodeName string }
		Status   struct {
			PodIP             string
			ContainerStatuses []struct{ RestartCount int }
		}
	}
}

// restarts is how often the container of a pod began anew.
func (c cluster) restarts(t *testing.T, namespace, pod string) int {
	t.Helper()
	var found podList
	eventually(t, "the restarts of pod "+pod, func() (string, bool) {
		found = podList{}
		err := c.read("/api/v1/namespaces/"+namespace+"/pods?fieldSelector=metadata.name%3D"+pod, &found)
		ok := err == nil && len(found.Items) == 1 && len(found.Items[0].Status.ContainerStatuses) == 1
		return fmt.Sprintf("%v, %+v", err, found), ok
	})
	return found.Items[0].Status.ContainerStatuses[0].RestartCount
}

// replaced waits until nodes are led to another pod than before, and it carries traffic.
func replaced(t *testing.T, c cluster, before gatewayPod) {
	t.Helper()
	eventually(t, "another gateway at "+c.name, func() (string, bool) {
		now := activeGateway(t, c)
		return now.name, now.name != before.name
	})
}

func deleteGateway(c cluster, how ...string) func(*testing.T) {
	return func(t *testing.T) {
		before := activeGateway(t, c)
		c.kubectl(t, append([]string{"-n", "liqo-tenant-" + other(c).name, "delete", "pod", before.name, "--wait=false"}, how...)...)
		replaced(t, c, before)
	}
}

// crashGateway ends the process that has the tunnel without a word. Its pod stays, and runs it again.
func crashGateway(c cluster) func(*testing.T) {
	return func(t *testing.T) {
		before := activeGateway(t, c)
		runs := func() int { return c.restarts(t, "liqo-tenant-"+other(c).name, before.name) }
		ran := runs()
		node := strings.TrimPrefix(before.node, c.name+"-")
		if out, err := testbed("exec", c.name, node, "--", "pkill", "-KILL", "-f", theGateway); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		eventually(t, before.name+" runs again", func() (string, bool) { now := runs(); return fmt.Sprint(now), now != ran })
	}
}

func rollGateways(c cluster) func(*testing.T) {
	return func(t *testing.T) {
		before := activeGateway(t, c)
		c.kubectl(t, "-n", "liqo-tenant-"+other(c).name, "rollout", "restart", "deployment/gw-"+other(c).name)
		c.rolled(t)
		replaced(t, c, before)
	}
}

// killGatewayNode crashes the node of the gateway that has the tunnel and of the controller that acts.
func killGatewayNode(c cluster) func(*testing.T) {
	return func(t *testing.T) {
		before := activeGateway(t, c)
		c.controllerOn(t, before.node)
		node := strings.TrimPrefix(before.node, c.name+"-")
		if out, err := testbed("node", "stop", c.name, node); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		// The next fault needs the node, and its pods.
		t.Cleanup(func() { c.startNode(t, node) })
		replaced(t, c, before)
	}
}

func drainGatewayNode(c cluster) func(*testing.T) {
	return func(t *testing.T) {
		before := activeGateway(t, c)
		t.Cleanup(func() {
			c.kubectl(t, "uncordon", before.node)
			c.rolled(t)
		})
		c.drain(t, before.node)
		replaced(t, c, before)
	}
}

func (c cluster) drain(t *testing.T, node string) {
	t.Helper()
	c.kubectl(t, "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", patiently)
}

// freezeAPIServers stops API servers in the middle of everything, so that nobody is even refused:
// longer than any lease lasts, of nodes too, so that all are unknown for some seconds after; five minutes in full.
// Nodes that are still unknown from before would be counted as lost for all that time, and their pods be evicted.
func freezeAPIServers(clusters ...cluster) func(*testing.T) {
	return func(t *testing.T) {
		away := 55 * time.Second
		if *soak {
			away = 5 * time.Minute
		}
		var before []gatewayPod
		for _, c := range clusters {
			c.waitForNodes(t)
			before = append(before, activeGateway(t, c))
		}
		for _, c := range clusters {
			c.signalAPIServer(t, "STOP")
		}
		time.Sleep(away) // the fault is its length; nobody can be asked meanwhile
		for _, c := range clusters {
			c.signalAPIServer(t, "CONT")
		}
		for i, c := range clusters {
			c.answersAgain(t)
			if now := activeGateway(t, c); now.name != before[i].name {
				t.Errorf("the tunnel of %s moved from %s to %s", c.name, before[i].name, now.name)
			}
		}
	}
}

// waitForNodes waits until no node is Unknown. All are for some seconds after an outage of the API server.
func (c cluster) waitForNodes(t *testing.T) {
	t.Helper()
	eventually(t, "no node of "+c.name+" is Unknown", func() (string, bool) {
		taints, err := c.ask("get", "nodes", "-o", "jsonpath={.items[*].spec.taints[*].key}")
		return taints, err == nil && !strings.Contains(taints, "node.kubernetes.io/")
	})
}

// kubeletHangs stops the kubelet beside the gateway that has the tunnel. When its node is not heard of any more, and
// all pods there are said not to be ready, something else happens.
func kubeletHangs(c cluster, happen func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		c.waitForNodes(t)
		at := activeGateway(t, c)
		signal := func(name string) {
			t.Helper()
			if out, err := testbed("kill", "--signal", name, c.name, strings.TrimPrefix(at.node, c.name+"-"), "kubelet"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}
		signal("STOP")
		t.Cleanup(func() {
			signal("CONT")
			c.kubectl(t, "wait", "node", at.node, "--for=condition=Ready", patiently)
			c.rolled(t)
		})
		c.kubectl(t, "-n", "liqo-tenant-"+other(c).name, "wait", "pod", at.name, "--for=condition=Ready=False", patiently)
		happen(t)
	}
}

func (c cluster) signalAPIServer(t *testing.T, name string) {
	t.Helper()
	if out, err := testbed("kill", "--signal", name, c.name, "cp", "kube-apiserver"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func (c cluster) answersAgain(t *testing.T) {
	t.Helper()
	eventually(t, "the API server answers", func() (string, bool) {
		out, err := c.ask("get", "--raw", "/readyz")
		return out, err == nil
	})
	c.kubectl(t, "-n", "liqo", "rollout", "status", "deployment/liqo-controller-manager", patiently)
}

// controllerOn makes the replica of the controller on a node the one that acts.
func (c cluster) controllerOn(t *testing.T, node string) {
	t.Helper()
	eventually(t, "the controller acts on "+node, func() (string, bool) {
		holder, err := c.ask("-n", "liqo", "get", "lease", "liqo-controller-manager", "-o", "jsonpath={.spec.holderIdentity}")
		pod, _, _ := strings.Cut(holder, "_")
		if err != nil || pod == "" {
			return holder, false
		}
		at, err := c.ask("-n", "liqo", "get", "pod", pod, "-o", "jsonpath={.spec.nodeName}")
		if err == nil && at != node {
			c.kubectl(t, "-n", "liqo", "delete", "pod", pod)
			return pod + " acts on " + at, false
		}
		return at, err == nil
	})
	c.kubectl(t, "-n", "liqo", "rollout", "status", "deployment/liqo-controller-manager", patiently)
}

// startNode starts what was killed and waits until the pods are back.
func (c cluster) startNode(t *testing.T, node string) {
	t.Helper()
	if out, err := testbed("node", "start", c.name, node); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "pods run on "+node, func() (string, bool) { // the API server may not have noticed that they did not
		out, err := testbed("exec", c.name, node, "--", "pgrep", "-o", "-x", "-f", "/echo")
		return out, err == nil
	})
	c.kubectl(t, "wait", "node", c.name+"-"+node, "--for=condition=Ready", patiently)
	c.kubectl(t, "rollout", "status", "daemonset/probe", "daemonset/host", patiently)
	c.kubectl(t, "-n", "liqo", "rollout", "status", "deployment/liqo-controller-manager", patiently)
	c.rolled(t)
}

// replicate gives the gateways of both clusters, and so their controllers, a number of replicas.
func replicate(t *testing.T, replicas int) {
	t.Helper()
	for _, c := range []cluster{rome, milan} {
		c.must(t, c.installation(fmt.Sprintf("networking.gatewayTemplates.replicas=%d", replicas))...)
	}
	for _, c := range []cluster{rome, milan} {
		eventually(t, "gateways of "+c.name, func() (string, bool) {
			got, err := c.ask("-n", "liqo-tenant-"+other(c).name, "get", "deployment", "gw-"+other(c).name, "-o", "jsonpath={.spec.replicas}")
			return got, err == nil && got == strconv.Itoa(replicas)
		})
		c.rolled(t)
		c.kubectl(t, "-n", "liqo", "rollout", "status", "deployment/liqo-controller-manager", patiently)
	}
}

// rolled waits until the gateways are as their Deployment wants them.
func (c cluster) rolled(t *testing.T) {
	t.Helper()
	c.kubectl(t, "-n", "liqo-tenant-"+other(c).name, "rollout", "status", "deployment/gw-"+other(c).name, patiently)
}
