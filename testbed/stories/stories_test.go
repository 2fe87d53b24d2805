// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// peerLines are what the mission shows for `liqoctl peer` between rome (local) and milan.
const peerLines = configurationLines + tunnelLines + ` INFO   (local) Tenant namespace correctly ensured
 INFO   (remote) Tenant namespace correctly ensured
 INFO   (remote) Nonce secret ensured
 INFO   (remote) Nonce generated successfully
 INFO   (remote) Nonce retrieved
 INFO   (local) Signed nonce secret ensured
 INFO   (local) Nonce is signed
 INFO   (local) Signed nonce retrieved
 INFO   (local) Tenant correctly generated
 INFO   (remote) Tenant correctly applied on provider cluster
 INFO   (remote) Tenant status is filled
 INFO   (remote) Identity correctly generated
 INFO   (local) Identity correctly applied on consumer cluster
 INFO   (local) Identity status is filled
 INFO   (local) ResourceSlice created
 INFO   (local) ResourceSlice authentication: Accepted
 INFO   (local) ResourceSlice resources: Accepted
`

// leftovers are the kinds of which nothing may be left when unpeer has returned.
var leftovers = []string{
	"rslice", "virtualnodes", "identities", "renews", "tenants", "gatewayservers", "gatewayclients", "configurations",
	"publickeies", "wggatewayservers", "wggatewayclients", "connections", "namespacemaps", "shadowpods",
	"shadowendpointslices", "quotas", "internalfabrics",
}

// TestConnecting runs some of the ways to connect and to peer clusters. Each story ends with clusters that are not
// connected.
func TestConnecting(t *testing.T) {
	tellEach(t, []stage{
		{nothing, installed, []story{{"install", install}}},
		{installed, installed, some(t, []story{
			{"bad input before a peering", badInput},
			{"volumes outlive Liqo", volumesOutliveLiqo},
			{"connect by command", connectByCommand},
			{"connect by hand", connectByHand},
			{"connect declaratively", connectDeclaratively},
			{"connect by templates and several ports", connectByTemplates},
			{"connect by another technology", connectByAnotherTechnology},
			{"connect over TCP where UDP is blocked", connectOverTCP},
			{"connect behind NAT by a name that moves", connectBehindNAT},
			{"what keeps clusters apart is named", whyNotConnected},
			{"causes are seen on the dashboard", causesAreSeen},
			{"the server can be at the consumer and move", serverAtConsumer},
			{"peer in band and both ways", peerInBand},
			{"peer by hand", peerByHand},
			{"peer declaratively", peerDeclaratively},
			{"peer without a network", peerWithoutNetwork},
			{"peer with a file of the provider", peerAsUser},
			{"controllers are killed at a step", killedAtAStep},
			{"clusters with other addresses", otherAddresses},
		})},
		{installed, installed, []story{{"pods behave as at home", podsLikeAtHome}}},
		{installed, nothing, []story{{"uninstall leaves nothing", uninstall}}},
	})
}

// TestPeered runs the stories of a peering in the order of a user's work. TestFirst runs those of
// the first hour. TestTimedStories ends the peering.
func TestPeered(t *testing.T) {
	user := &session{test: t}
	tellEach(t, []stage{
		{nothing, installed, []story{{"install", install}}},
		{installed, peered, []story{{"peer", peerFirst}}},
		{peered, peered, some(t, []story{
			{"peer again changes nothing", peerAgain},
			{"keys and ranges change", parametersChange},
			{"every pod reaches every pod", everyPodReachesEveryPod},
			{"every path is tested by liqoctl", everyPathIsTested},
			{"a peer reaches pods and nothing else", trespassing},
			{"no pod is taken for a gateway", impersonated},
			{"rules of users act", usersRulesAct},
			{"routes of users act", usersRoutesAct},
			{"an external host is reached", externalHostIsReached},
			{"rules can be printed and are as desired", rulesAsDesired},
			{"a report is gathered without secrets", reportIsGathered},
			{"nothing is written while nothing changes", nothingIsWritten},
		})},
		{peered, offloaded, []story{{"a namespace is offloaded", offloadNamespace}}},
		{offloaded, offloaded, []story{{"a user keeps a terminal open", user.begin}}},
		{offloaded, offloaded, some(t, []story{
			{"examples do what their pages say", examples},
			{"a pod that ends is followed to its end", podThatEnds},
			{"a pod without a place next door says so", withoutAPlace},
			{"objects are reflected", objectsAreReflected},
			{"namespaces next door", namespacesNextDoor},
			{"a namespace ends beside its remote one", namespaceEnds},
			{"two virtual nodes lead to one provider", secondVirtualNode},
			{"a pod that came first gets going", podThatCameFirst},
			{"the home API server is reached at its endpoints", apiServerByEndpoints},
			{"both directions", bothDirections},
			{"volumes stay where they are", volumesStayWhereTheyAre},
			{"pods at two providers reach each other", leafToLeaf},
			{"losses are survived", lossesAreSurvived},
			{"info tells about the peering", info},
			{"why names what a pod waits for", whyAPodWaits},
		})},
		{offloaded, offloaded, []story{{"certificates renew and nothing is interrupted", user.lasts}}},
	})
}

// TestTimedStories runs some of the stories that assert times, which other work on the machine would
// disturb, and ends the peering. It continues on the clusters that TestPeered left, or on new ones.
func TestTimedStories(t *testing.T) {
	tellEach(t, []stage{
		{offloaded, offloaded, some(t, []story{
			{"refusals of the provider are told promptly", refusalsAreTold},
			{"a provider that hangs is noticed", providerHangs},
			{"a namespace ends as promptly as one of home", namespaceEndsPromptly},
			{"gateways are replaced", gatewaysAreReplaced},
		})},
		{offloaded, installed, []story{{"unpeer leaves nothing", unpeer}}},
		{installed, installed, some(t, []story{
			{"peer and unpeer once more", onceMore},
			{"a ForeignCluster sums up promptly", sumsUpPromptly},
			{"a ForeignCluster sums up promptly each way to peer", sumsUpEachWay},
			{"a ForeignCluster sums up promptly after controllers were killed", sumsUpAfterKill},
		})},
		{installed, nothing, []story{{"uninstall leaves nothing", uninstall}}},
	})
}

// TestTimedHostilePeer runs after TestTimedStories, which leaves the clusters as they were before Liqo was installed.
func TestTimedHostilePeer(t *testing.T) {
	tellEach(t, []stage{{nothing, unknown, []story{{"a hostile peer gains nothing", hostilePeer}}}})
}

// install installs Liqo on both clusters as a user would, with the image loaded by hand, and
// starts the probes.
func install(t *testing.T) { installWith(t) }

// installWith is install with settings of the chart.
func installWith(t *testing.T, settings ...string) {
	t.Helper()
	failures := make(chan string, 2)
	both(func(c cluster) {
		stdout, stderr, code := c.install(t, settings...)
		if code != 0 || !strings.Contains(stderr, "All Set! You can now proceed establishing a peering") {
			failures <- fmt.Sprintf("install on %s: exit code %d\n%s%s", c.name, code, stdout, stderr)
		}
	})
	close(failures)
	for f := range failures {
		t.Error(f)
	}
	for _, c := range []cluster{rome, milan} {
		c.apply(t, probes)
	}
	for _, c := range []cluster{rome, milan} {
		c.kubectl(t, "rollout", "status", "daemonset/probe", "daemonset/host", patiently)
	}
}

func (c cluster) install(t *testing.T, settings ...string) (stdout, stderr string, code int) {
	t.Helper()
	return c.liqoctl(t, c.installation(settings...)...)
}

// installation is how Liqo is installed, or upgraded, with settings of the chart.
func (c cluster) installation(settings ...string) []string {
	return append(c.plainInstallation(), "--set", strings.Join(append(settings, "pullPolicy=Never"), ","))
}

// plainInstallation is an installation without settings of the chart.
func (c cluster) plainInstallation() []string {
	return []string{"install", "--cluster-id", c.name, "--pod-cidr", strings.Join(c.pods, ","), "--service-cidr", services,
		"--api-server-url", c.api}
}

// badInput: one clear line, exit code 1, nothing half-made.
func badInput(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"same cluster twice", []string{"peer", "--remote-kubeconfig", rome.kubeconfig},
			"local and remote clusters must be different"},
		{"wrong kubeconfig", []string{"peer", "--remote-kubeconfig", "/does/not/exist"},
			"cannot use the kubeconfig of the remote cluster: stat /does/not/exist: no such file or directory; check --remote-kubeconfig and --remote-context"},
		{"illegal cluster ID", []string{"create", "resourceslice", "x", "--remote-cluster-id", "Not_An_ID"},
			`invalid argument "Not_An_ID" for "--remote-cluster-id" flag: cluster ID "Not_An_ID": use lower-case letters, digits and '-', starting and ending with a letter or digit`},
		{"CIDR that does not parse", []string{"create", "configuration", "x", "--remote-cluster-id", "milan", "--pod-cidr", "10.0.0.0/64", "--external-cidr", "10.70.0.0/16"},
			`invalid argument "10.0.0.0/64" for "--pod-cidr" flag: "10.0.0.0/64" is not an address range like 10.0.0.0/16`},
	} {
		_, stderr, code := rome.liqoctl(t, c.args...)
		if code != 1 {
			t.Errorf("%s: exit code %d", c.name, code)
		}
		if want := " ERRO   " + c.want + "\n"; stderr != want {
			t.Errorf("%s: want the line %q, got\n%s", c.name, want, stderr)
		}
	}
	clash(t)
	nothingLeft(t)
}

// clash asks for a CIDR that rome's pods have.
func clash(t *testing.T) {
	t.Helper()
	rome.apply(t, `
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: clash, namespace: default, labels: {ipam.liqo.io/network-not-remapped: "true"}}
spec: {cidr: 10.10.7.0/24}
`)
	rome.kubectl(t, "wait", "networks.ipam.liqo.io/clash", "--for=condition=Ready=False", patiently)
	const says = "CIDRTaken 10.10.7.0/24 must not be remapped but overlaps 10.10.0.0/16 of Network liqo/pod-cidr; delete one of the two"
	if got := rome.kubectl(t, "get", "networks.ipam.liqo.io", "clash", "-o", "jsonpath={.status.conditions[0].reason} {.status.conditions[0].message}"); got != says {
		t.Errorf("a CIDR that is taken says %q", got)
	}
	rome.kubectl(t, "delete", "networks.ipam.liqo.io", "clash", patiently)
}

func peerFirst(t *testing.T) {
	_, stderr := rome.must(t, "peer", "--remote-kubeconfig", milan.kubeconfig, "--gw-server-service-type", "NodePort")
	if stderr != peerLines {
		t.Errorf("peer printed other lines than the mission:\n%s", stderr)
	}
	peeringIsShown(t)
}

// peeringIsShown checks what the mission shows after a peering.
func peeringIsShown(t *testing.T) {
	t.Helper()
	rome.sumsUp(t, "milan", givesAll)
	milan.sumsUp(t, "rome", takesAll)
	if node := rome.kubectl(t, "get", "nodes", "-l", "liqo.io/type=virtual-node", "--no-headers"); !regexp.MustCompile(`^milan +Ready +agent `).MatchString(node) {
		t.Errorf("virtual node: %s", node)
	}
}

// peerAgain expects success, the same lines, and not one write to the peering's objects.
func peerAgain(t *testing.T) {
	versions := func() string {
		var all []string
		for _, c := range []cluster{rome, milan} {
			for _, kind := range []string{"configurations", "gatewayservers", "gatewayclients", "publickeies", "tenants", "identities", "rslice", "virtualnodes"} {
				all = append(all, c.kubectl(t, "get", kind, "-A", "-o", "jsonpath={range .items[*]}{.kind}/{.metadata.name}@{.metadata.generation} {end}"))
			}
		}
		return strings.Join(all, "\n")
	}
	before := versions()
	_, stderr := rome.must(t, "peer", "--remote-kubeconfig", milan.kubeconfig, "--gw-server-service-type", "NodePort")
	if after := versions(); after != before {
		t.Errorf("a second run changed objects:\n%s\nbecame\n%s", before, after)
	}
	if stderr != peerLines {
		t.Errorf("a second run printed other lines:\n%s", stderr)
	}
	peeringIsShown(t)
}

// probes is a pod on every node of a cluster, in the pod network and in the host's.
const probes = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: probe, namespace: default}
spec:
  selector: {matchLabels: {app: probe}}
  template:
    metadata: {labels: {app: probe}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - {name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never, ports: [{containerPort: 8080}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: host, namespace: default}
spec:
  selector: {matchLabels: {app: host}}
  template:
    metadata: {labels: {app: host}}
    spec:
      hostNetwork: true
      terminationGracePeriodSeconds: 0
      containers:
      - {name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never, args: [sleep]}
---
apiVersion: v1
kind: Service
metadata: {name: probe, namespace: default}
spec: {type: NodePort, selector: {app: probe}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
`

func everyPodReachesEveryPod(t *testing.T) { reachEachOther(t, rome, milan) }

// reachEachOther tries the whole matrix: from pods and host-network pods of every
// node to pods of every node of the other cluster, over TCP and UDP, in both directions.
func reachEachOther(t *testing.T, a, b cluster) {
	t.Helper()
	for _, way := range []struct{ from, to cluster }{{a, b}, {b, a}} {
		targets := remapped(t, way.from, way.to, pods(t, way.to, "probe", "{.status.podIP}"))
		for _, source := range slices.Concat(pods(t, way.from, "probe", "{.metadata.name}"), pods(t, way.from, "host", "{.metadata.name}")) {
			for _, target := range targets {
				way.from.echo(t, "default", source, "get", "http://"+target+":8080/")
				way.from.echo(t, "default", source, "udp", target+":9000")
				way.from.echo(t, "default", source, "tcp", "-n", "3", "-i", "10ms", target+":9000")
			}
		}
		// ICMP from a pod's network and from its node's; the echo image has no ping.
		for _, target := range targets {
			for _, ping := range []string{`nsenter -t "$(pgrep -o -x -f /echo)" -n ping -c 1 -W 3 `, "ping -c 1 -W 3 "} {
				// A machine that starves a gateway for seconds loses a packet; one of the next arrives.
				eventually(t, way.from.name+": "+ping+target, func() (string, bool) {
					out, err := testbed("exec", way.from.name, "n1", "--", "sh", "-c", ping+target)
					return out, err == nil
				})
			}
		}
	}
}

// rulesAsDesired asks every node and gateway what it wants, what the kernel has, and what differs.
func rulesAsDesired(t *testing.T) {
	for _, c := range []cluster{rome, milan} {
		places := [][]string{{"-n", "liqo-tenant-" + other(c).name, "exec", "deployment/gw-" + other(c).name, "--", "liqo", "gateway", "show"}}
		for _, pod := range strings.Fields(c.kubectl(t, "-n", "liqo", "get", "pods", "-l", "app.kubernetes.io/name=fabric", "-o", "name")) {
			places = append(places, []string{"-n", "liqo", "exec", pod, "--", "liqo", "fabric", "show"})
		}
		for _, place := range places {
			for _, what := range []string{"desired", "observed"} {
				if out := c.kubectl(t, append(slices.Clone(place), what)...); !strings.Contains(out, "liqo.ovl") {
					t.Errorf("%s: %v %s does not show the overlay:\n%s", c.name, place, what, out)
				}
			}
			eventually(t, fmt.Sprintf("%s: %v: nothing differs from what is desired", c.name, place), func() (string, bool) {
				out, err := c.ask(append(slices.Clone(place), "diff")...)
				return out, err == nil && out == ""
			})
		}
	}
}

func other(c cluster) cluster {
	if c.name == rome.name {
		return milan
	}
	return rome
}

// podThatEnds follows the log of an offloaded pod until it ends, and sees it finished.
func podThatEnds(t *testing.T) {
	rome.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: job, namespace: shop}
spec:
  restartPolicy: Never
  nodeSelector: {liqo.io/type: virtual-node}
  containers:
  - {name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never, args: [get, -n, "5", -i, 500ms, -timeout, 10m, "http://web/"]}
`)
	rome.kubectl(t, "-n", "shop", "wait", "pod/job", "--for=jsonpath={.status.containerStatuses[0].containerID}", patiently)
	log := rome.kubectl(t, "-n", "shop", "logs", "-f", "job")
	if !strings.Contains(log, "5 answered, 0 failed") {
		t.Errorf("log of the pod that ends:\n%s", log)
	}
	rome.kubectl(t, "-n", "shop", "wait", "pod/job", "--for=jsonpath={.status.phase}=Succeeded", patiently)
	rome.kubectl(t, "-n", "shop", "delete", "pod", "job", patiently)
}

// pods lists one field of the pods with the label app, on worker nodes.
func pods(t *testing.T, c cluster, app, field string) []string {
	t.Helper()
	return strings.Fields(c.kubectl(t, "get", "pods", "-l", "app="+app, "-o", "jsonpath={range .items[*]}"+field+" {end}"))
}

// remapped gives addresses of pods of one cluster as another one sees them: translated where they are among its own
// addresses, and as they are where they are not.
func remapped(t *testing.T, viewer, owner cluster, addrs []string) []string {
	t.Helper()
	out := slices.Clone(addrs)
	for _, cidr := range owner.pods {
		of := netip.MustParsePrefix(cidr)
		own := func(p netip.Prefix) bool {
			return slices.ContainsFunc(viewer.pods, func(cidr string) bool { return netip.MustParsePrefix(cidr).Overlaps(p) })
		}
		seen, err := netip.ParsePrefix(viewer.kubectl(t, "get", "configurations", "-A", "-l", "liqo.io/remote-cluster-id="+owner.name,
			"-o", `jsonpath={.items[0].status.views[?(@.cidr=="`+cidr+`")].seenAs}`))
		if err != nil || seen.Bits() != of.Bits() || own(seen) || own(of) == (seen == of) {
			t.Fatalf("%s, whose pods are in %v, sees %s of %s at %v: %v", viewer.name, viewer.pods, cidr, owner.name, seen, err)
		}
		for i, text := range addrs {
			if addr := netip.MustParseAddr(text); of.Contains(addr) {
				host := binary.BigEndian.Uint32(addr.AsSlice()) & (1<<(32-of.Bits()) - 1)
				out[i] = netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(seen.Addr().AsSlice())|host))).String()
			}
		}
	}
	return out
}

// web is a deployment that spreads over all nodes, with what pods usually have beside them.
const web = `
apiVersion: v1
kind: ConfigMap
metadata: {name: page, namespace: shop}
data: {greeting: hello}
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: shop}
stringData: {password: sesame}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: echo
        image: testbed.local/echo:1
        imagePullPolicy: Never
        ports: [{containerPort: 8080}]
        env:
        - {name: CLUSTER, valueFrom: {configMapKeyRef: {name: page, key: greeting}}}
        volumeMounts: [{name: key, mountPath: /key}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
      volumes: [{name: key, secret: {secretName: key}}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-outside, namespace: shop}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30081}]}
`

func offloadNamespace(t *testing.T) {
	rome.kubectl(t, "create", "namespace", "shop")
	_, stderr := rome.must(t, "offload", "namespace", "shop")
	if want := ` INFO   Offloading of namespace "shop" correctly enabled`; !strings.Contains(stderr, want) {
		t.Errorf("want %q in\n%s", want, stderr)
	}
	rome.apply(t, web)
	rome.kubectl(t, "-n", "shop", "rollout", "status", "deployment/web", patiently)
	nodes := strings.Fields(rome.kubectl(t, "-n", "shop", "get", "pods", "-o", "jsonpath={range .items[*]}{.spec.nodeName} {end}"))
	count := map[string]int{}
	for _, n := range nodes {
		count[n]++
	}
	if len(count) != 3 || count["milan"] != 2 {
		t.Errorf("pods by node: %v; want two on each of rome's nodes and on milan", count)
	}
	for _, addr := range strings.Fields(offloadedPods(t, "{.status.podIP}")) {
		rome.echo(t, "default", pods(t, rome, "probe", "{.metadata.name}")[0], "get", "http://"+addr+":8080/")
	}
}

// offloadedPods prints a field of the web pods on the virtual node.
func offloadedPods(t *testing.T, field string) string {
	t.Helper()
	return rome.kubectl(t, "-n", "shop", "get", "pods", "-l", "app=web", "--field-selector", "spec.nodeName=milan", "-o", "jsonpath={range .items[*]}"+field+" {end}")
}

func throughTheVirtualNode(t *testing.T) {
	pod := strings.Fields(offloadedPods(t, "{.metadata.name}"))[0]
	if log := rome.kubectl(t, "-n", "shop", "logs", pod); !strings.Contains(log, "http=:8080") {
		t.Errorf("log of %s: %q", pod, log)
	}
	if out := rome.kubectl(t, "-n", "shop", "exec", pod, "--", "/echo", "cat", "/key/password"); out != "sesame" {
		t.Errorf("secret in the offloaded pod: %q", out)
	}
	// The API server it finds is that of its home. The pod's program does not know its CA, so
	// being shown a certificate for the right name is as far as it gets.
	eventually(t, "the offloaded pod reaches the home API server", func() (string, bool) {
		answer, failure, err := command("kubectl", "--kubeconfig", rome.kubeconfig, "-n", "shop", "exec", pod, "--",
			"/echo", "get", "-timeout", "3s", "https://kubernetes.default/version")
		return answer + failure, err != nil && strings.Contains(answer+failure, "certificate signed by unknown authority")
	})
	// What is typed comes back, line by line, until the end.
	out := typed(t, "one\ntwo\nexit\n", "-n", "shop", "exec", "-i", pod, "--", "/echo", "cat")
	if !strings.Contains(out, "one\ntwo\n") {
		t.Errorf("exec -i answered %q", out)
	}
}

// bounded is a Deployment that a quota next door refuses.
const bounded = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: guest, namespace: shop}
spec:
  selector: {matchLabels: {app: guest}}
  template:
    metadata: {labels: {app: guest}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never}]
`

func withoutAPlace(t *testing.T) { refusals(t) }

// refusals cordons the provider's nodes, and bounds what the namespace there may hold. Home tells what is said there,
// and pods that can be replaced go home. It returns how long home took to tell each refusal.
func refusals(t *testing.T) map[string]time.Duration {
	t.Helper()
	took := map[string]time.Duration{}
	nodes := strings.Fields(milan.kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].metadata.name}"))
	milan.kubectl(t, append([]string{"cordon"}, nodes...)...)
	rome.apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: placeless, namespace: shop, labels: {app: placeless}}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {liqo.io/type: virtual-node}
  containers: [{name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never}]
`)
	took["what the provider's scheduler says"] = tells(t, "what the provider's scheduler says", "nodes are available", "placeless")
	milan.kubectl(t, append([]string{"uncordon"}, nodes...)...)
	rome.kubectl(t, "-n", "shop", "wait", "pod/placeless", "--for=condition=Ready", patiently)
	rome.kubectl(t, "-n", "shop", "delete", "pod", "placeless", patiently)

	milan.kubectl(t, "-n", "shop-rome", "create", "resourcequota", "full", "--hard=pods=0")
	milan.kubectl(t, "-n", "shop-rome", "wait", "resourcequota/full", "--for=jsonpath={.status.hard.pods}=0", patiently)
	rome.kubectl(t, "cordon", "rome-n1", "rome-n2")
	rome.apply(t, bounded)
	took["what the provider's quota says"] = tells(t, "what the provider's quota says", "exceeded quota: full", "guest")
	rome.kubectl(t, "uncordon", "rome-n1", "rome-n2")
	rome.kubectl(t, "-n", "shop", "rollout", "status", "deployment/guest", patiently)
	milan.kubectl(t, "-n", "shop-rome", "delete", "resourcequota", "full")
	rome.kubectl(t, "-n", "shop", "delete", "deployment", "guest")
	out, err := rome.ask("taint", "node", "milan", "virtual-node.liqo.io/no-room-") // the next stories need not know
	if err != nil && !strings.Contains(out, "not found") {
		t.Errorf("open the virtual node again: %v\n%s", err, out)
	}
	return took
}

// tells waits until a pod made just now says at home why it has no place, and returns how long that took.
func tells(t *testing.T, what, text, app string) time.Duration {
	t.Helper()
	began := time.Now()
	eventually(t, "home tells "+what, func() (string, bool) {
		got, err := rome.ask("-n", "shop", "get", "pods", "-l", "app="+app, "-o", `jsonpath={.items[*].status.conditions[?(@.type=="PodScheduled")].message}`)
		return got, err == nil && strings.Contains(got, text)
	})
	return time.Since(began)
}

// refusalsAreTold: home tells promptly why a pod has no place at the provider.
func refusalsAreTold(t *testing.T) {
	const promptly = 5 * time.Second
	for what, took := range refusals(t) {
		t.Logf("home told %s after %s", what, took)
		if took > promptly {
			t.Errorf("home told %s after %s, more than %s", what, took, promptly)
		}
	}
}

// objectsAreReflected: what changes follows, what is deleted comes back, and pods stay meanwhile.
func objectsAreReflected(t *testing.T) {
	for _, object := range []string{"configmap/page", "secret/key", "service/web"} {
		milan.kubectl(t, "-n", "shop-rome", "get", object)
	}
	rome.kubectl(t, "-n", "shop", "patch", "configmap", "page", "-p", `{"data":{"greeting":"ciao"}}`)
	eventually(t, "changed ConfigMap at the provider", func() (string, bool) {
		got, err := milan.ask("-n", "shop-rome", "get", "configmap", "page", "-o", "jsonpath={.data.greeting}")
		return got, err == nil && got == "ciao"
	})
	milan.replace(t, "shop-rome", "configmap/page")
	eventually(t, "deleted ConfigMap comes back", func() (string, bool) {
		got, err := milan.ask("-n", "shop-rome", "get", "configmap", "page", "-o", "jsonpath={.data.greeting}")
		return got, err == nil && got == "ciao"
	})
	const states = "{.metadata.uid}={.status.phase}"
	before := offloadedPods(t, states)
	rome.replace(t, "liqo-tenant-milan", "namespacemap/milan")
	eventually(t, "deleted NamespaceMap comes back", func() (string, bool) {
		got, err := rome.ask("-n", "liqo-tenant-milan", "get", "namespacemap", "milan", "-o", "jsonpath={.status.currentMapping.shop.phase}")
		return got, err == nil && got == "Accepted"
	})
	if after := offloadedPods(t, states); after != before || !strings.Contains(after, "=Running") {
		t.Errorf("pods next door were %s and are %s", before, after)
	}
}

// serviceOnBothSides calls the Service by its name from a pod on either side until pods of
// both sides have answered.
func serviceOnBothSides(t *testing.T) {
	names := strings.Fields(rome.kubectl(t, "-n", "shop", "get", "pods", "-l", "app=web", "-o", "jsonpath={range .items[*]}{.metadata.name} {end}"))
	remote := strings.Fields(offloadedPods(t, "{.metadata.name}"))
	local := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(remote, n) })
	everyone := func(what string, ask func() (string, error)) {
		eventually(t, "all pods answer "+what, func() (string, bool) {
			got, err := ask()
			missing := slices.ContainsFunc(names, func(n string) bool { return !strings.Contains(got, "pod="+n+" ") })
			return got, err == nil && !missing
		})
	}
	for _, source := range []string{local[0], remote[0]} {
		everyone("the pod "+source, func() (string, error) {
			return rome.ask("-n", "shop", "exec", source, "--", "/echo", "get", "-n", "60", "-i", "5ms", "-timeout", "900ms", "http://web/")
		})
	}
	// From outside rome: a node of milan asks the node port of each of rome's nodes.
	for _, addr := range strings.Fields(rome.kubectl(t, "get", "nodes", "-l", "liqo.io/type!=virtual-node", "-o", "jsonpath={range .items[*]}{.status.addresses[0].address} {end}")) {
		everyone("the node port of "+addr, func() (string, error) {
			return milan.ask("exec", pods(t, milan, "host", "{.metadata.name}")[0], "--", "/echo", "get", "-n", "60", "-i", "5ms", "-timeout", "900ms", "http://"+addr+":30081/")
		})
	}
}

// podThatCameFirst: pods made before their namespace is offloaded wait, and run when it is. That of the Job,
// which has to be made anew to go where it must, does not count as failed.
func podThatCameFirst(t *testing.T) {
	for _, n := range []string{"early", "early-job"} {
		rome.kubectl(t, "create", "namespace", n)
	}
	rome.apply(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: early, namespace: early}
spec:
  replicas: 1
  selector: {matchLabels: {app: early}}
  template:
    metadata: {labels: {app: early}}
    spec:
      terminationGracePeriodSeconds: 0
      nodeSelector: {liqo.io/type: virtual-node}
      containers: [{name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: early, namespace: early-job}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      nodeSelector: {liqo.io/type: virtual-node}
      containers: [{name: main, image: "testbed.local/shell:1", imagePullPolicy: Never, args: [-c, "true"]}]
`)
	for _, n := range []string{"early", "early-job"} {
		eventually(t, "the early pod waits", func() (string, bool) {
			got, err := rome.ask("-n", n, "get", "pods", "-o", "jsonpath={.items[0].status.conditions[0].reason}")
			return got, err == nil && got == "Unschedulable"
		})
	}
	rome.must(t, "offload", "namespace", "early")
	rome.must(t, "offload", "namespace", "early-job", "--pod-offloading-strategy", "Remote")
	rome.kubectl(t, "-n", "early", "rollout", "status", "deployment/early", patiently)
	rome.kubectl(t, "-n", "early-job", "wait", "job/early", "--for=condition=Complete", patiently)
	if failed := rome.kubectl(t, "-n", "early-job", "get", "job", "early", "-o", "jsonpath={.status.failed}"); failed != "" {
		t.Errorf("the Job counts %s pods as failed", failed)
	}
	rome.must(t, "unoffload", "namespace", "early", "early-job", "--skip-confirm")
	rome.kubectl(t, "delete", "namespace", "early", "early-job", patiently)
}

func info(t *testing.T) {
	stdout, _ := rome.must(t, "info", "--get", "clusterid")
	if strings.TrimSpace(stdout) != "rome" {
		t.Errorf("cluster ID: %q", stdout)
	}
	eventually(t, "info says that milan is a healthy provider", func() (string, bool) {
		stdout, stderr, code := rome.liqoctl(t, "info", "peer", "milan", "-o", "json")
		healthy := strings.Contains(stdout, `"role": "Provider"`) && strings.Contains(stdout, `"status": "Healthy"`)
		return stdout + stderr, code == 0 && healthy
	})
}

// unpeer expects that what ran next door runs at home when the command returns or soon after,
// and that nothing of the peering is left on either side.
func unpeer(t *testing.T) {
	rome.kubectl(t, "-n", "shop", "patch", "deployment", "web", "--type=json", "-p", `[{"op":"remove","path":"/spec/template/spec/topologySpreadConstraints"}]`)
	rome.must(t, "unpeer", "--remote-kubeconfig", milan.kubeconfig)
	nothingLeft(t)
	rome.kubectl(t, "-n", "shop", "rollout", "status", "deployment/web", patiently)
	rome.must(t, "unoffload", "namespace", "shop", "--skip-confirm")
	rome.kubectl(t, "delete", "namespace", "shop", patiently)
	eventually(t, "remote namespace is gone", func() (string, bool) {
		got, err := milan.ask("get", "namespace", "shop-rome", "--ignore-not-found", "-o", "name")
		return got, err == nil && got == ""
	})
}

// nothingLeft lists every kind of a peering on both clusters.
func nothingLeft(t *testing.T) {
	t.Helper()
	for _, c := range []cluster{rome, milan} {
		left := c.kubectl(t, "get", strings.Join(leftovers, ","), "-A", "--ignore-not-found", "-o", "name")
		nodes := c.kubectl(t, "get", "nodes", "-l", "liqo.io/type=virtual-node", "-o", "name")
		if left != "" || nodes != "" {
			t.Errorf("%s has left:\n%s\n%s", c.name, left, nodes)
		}
	}
}

// onceMore also takes the only offloaded namespace back while the clusters are peered.
func onceMore(t *testing.T) {
	peerFirst(t)
	rome.kubectl(t, "create", "namespace", "last")
	rome.must(t, "offload", "namespace", "last")
	rome.must(t, "unoffload", "namespace", "last", "--skip-confirm")
	milan.kubectl(t, "wait", "--for=delete", "namespace/last-rome", patiently)
	rome.must(t, "unpeer", "--remote-kubeconfig", milan.kubeconfig, "--delete-namespaces")
	nothingLeft(t)
}

func uninstall(t *testing.T) {
	for _, c := range []cluster{rome, milan} {
		c.kubectl(t, "delete", "daemonset,service", "-l", "app notin (x)", "-n", "default", "--field-selector", "metadata.name!=kubernetes")
		_, stderr := c.must(t, "uninstall", "--purge", "--skip-confirm")
		if !strings.Contains(stderr, "Liqo uninstalled") {
			t.Errorf("uninstall on %s printed\n%s", c.name, stderr)
		}
		eventually(t, "nothing of Liqo is left on "+c.name, func() (string, bool) {
			got, err := c.ask("get", "crd,clusterrole,clusterrolebinding,mutatingwebhookconfiguration,validatingwebhookconfiguration,namespace,storageclass,runtimeclass", "-o", "name")
			left := slices.DeleteFunc(strings.Fields(got), func(n string) bool { return !strings.Contains(n, "liqo") })
			return strings.Join(left, "\n"), err == nil && len(left) == 0
		})
		for _, node := range []string{"n1", "n2"} {
			for _, cmd := range [][]string{{"ip", "link"}, {"ip", "rule"}, {"nft", "list", "tables"}} {
				out, err := testbed("exec", append([]string{c.name, node, "--"}, cmd...)...)
				if err != nil || strings.Contains(out, "liqo") {
					t.Errorf("%s-%s: %v: %v\n%s", c.name, node, cmd, err, out)
				}
			}
		}
	}
}
