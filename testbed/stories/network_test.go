// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The ways to connect two clusters without peering them. Each story begins and ends without a
// network between the clusters, and compares all nodes before and after.

// initLines, connectLines, disconnectLines and resetLines are what the mission shows, with the
// names of our clusters.
const (
	identityLines = ` INFO   (local) Cluster identity correctly retrieved
 INFO   (remote) Cluster identity correctly retrieved
`
	configurationLines = ` INFO   (local) Network configuration correctly retrieved
 INFO   (remote) Network configuration correctly retrieved
 INFO   (local) Network configuration correctly set up
 INFO   (remote) Network configuration correctly set up
 INFO   (local) Configuration applied successfully
 INFO   (remote) Configuration applied successfully
`
	tunnelLines = ` INFO   (local) Network correctly initialized
 INFO   (remote) Network correctly initialized
 INFO   (remote) Gateway server correctly set up
 INFO   (remote) Gateway pod gw-rome is ready
 INFO   (remote) Gateway server Service created successfully
 INFO   (local) Gateway client correctly set up
 INFO   (local) Gateway pod gw-milan is ready
 INFO   (remote) Gateway server Secret created successfully
 INFO   (local) Public key correctly created
 INFO   (local) Gateway client Secret created successfully
 INFO   (remote) Public key correctly created
 INFO   (remote) Connection created successfully
 INFO   (local) Connection created successfully
 INFO   (local) Connection is established
 INFO   (remote) Connection is established
`
	initLines       = identityLines + configurationLines
	connectLines    = identityLines + tunnelLines
	disconnectLines = identityLines + ` INFO   (local) Gateway client correctly deleted
 INFO   (remote) Gateway server correctly deleted
`
	resetLines = disconnectLines + ` INFO   (local) Network configuration correctly deleted
 INFO   (remote) Network configuration correctly deleted
`
)

// connectByCommand is the mission's page on liqoctl network, in its order.
func connectByCommand(t *testing.T) {
	restored := nodesAsBefore(t)
	run := func(want, verb string, args ...string) {
		t.Helper()
		if got := network(t, verb, args...); got != want {
			t.Errorf("network %s printed other lines than the mission:\n%s", verb, got)
		}
	}
	run(initLines, "init")
	disconnected := kernelsAsBefore(t)
	run(connectLines, "connect", "--server-service-type", "NodePort")
	reach(t)
	connections(t, "liqo-tenant-milan gw-milan Client Connected", "liqo-tenant-rome gw-rome Server Connected")
	run(disconnectLines, "disconnect", "--wait", "--skip-confirm")
	disconnected()
	run(resetLines, "reset", "--wait", "--skip-confirm")
	// What follows is tried without a tenant namespace.
	rome.kubectl(t, "delete", "namespace", "liqo-tenant-milan", patiently)
	milan.kubectl(t, "delete", "namespace", "liqo-tenant-rome", patiently)
	restored()
}

// connectByHand is the mission's eight steps, each administrator on the own cluster only; the
// client is at rome. Everything lies in the namespace default.
func connectByHand(t *testing.T) {
	restored := nodesAsBefore(t)
	client, server := rome, milan
	configuration := func(c cluster) string { stdout, _ := c.must(t, "generate", "configuration"); return stdout }
	server.apply(t, configuration(client))
	client.apply(t, configuration(server))
	server.must(t, "create", "gatewayserver", "server", "--remote-cluster-id", client.name, "--service-type", "NodePort")
	endpoint := eventually(t, "endpoint of the server", func() (string, bool) {
		got, err := server.ask("get", "gatewayservers", "server", "-o", "jsonpath={.status.endpoint.addresses[0]} {.status.endpoint.port}")
		return got, err == nil && len(strings.Fields(got)) == 2
	})
	address, port, _ := strings.Cut(endpoint, " ")
	client.must(t, "create", "gatewayclient", "client", "--remote-cluster-id", server.name, "--addresses", address, "--port", port)
	key, _ := server.must(t, "generate", "publickey", "--gateway-type", "server", "--gateway-name", "server")
	client.apply(t, key)
	key, _ = client.must(t, "generate", "publickey", "--gateway-type", "client", "--gateway-name", "client")
	server.apply(t, key)

	connections(t, "default gw-client Client Connected", "default gw-server Server Connected")
	reach(t)
	client.kubectl(t, "delete", "gatewayclients,publickeies,configurations", "-n", "default", "--all", patiently)
	server.kubectl(t, "delete", "gatewayservers,publickeies,configurations", "-n", "default", "--all", patiently)
	restored()
}

// declared is one side of the mission's declarative network: what a cluster must know of its peer,
// its own keys, and its gateway.
const declared = `
apiVersion: v1
kind: Namespace
metadata:
  name: to-%[1]s
  labels: {liqo.io/tenant-namespace: "true", liqo.io/remote-cluster-id: %[1]s}
---
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata: {name: %[1]s, namespace: to-%[1]s, labels: {liqo.io/remote-cluster-id: %[1]s}}
spec: {remote: {cidr: {pod: ["%[2]s"], external: ["%[3]s"]}}}
---
apiVersion: v1
kind: Secret
metadata: {name: gw-keys, namespace: to-%[1]s}
type: Opaque
data: {privateKey: %[4]s, publicKey: %[5]s}
---
apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
metadata:
  name: gw-publickey
  namespace: to-%[1]s
  labels: {liqo.io/remote-cluster-id: %[1]s, networking.liqo.io/gateway-resource: "true"}
spec: {publicKey: %[6]s}
---
apiVersion: networking.liqo.io/v1beta1
%[7]s
`

// declaredServer and declaredClient end a manifest of declared.
const (
	declaredServer = `kind: GatewayServer
metadata: {name: server, namespace: to-rome, labels: {liqo.io/remote-cluster-id: rome}}
spec:
  serverTemplateRef: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayServerTemplate, name: wireguard-server, namespace: liqo}
  secretRef: {name: gw-keys}
  endpoint: {serviceType: NodePort, port: 51840, nodePort: 30742}
  mtu: 1340`
	declaredClient = `kind: GatewayClient
metadata: {name: client, namespace: to-milan, labels: {liqo.io/remote-cluster-id: milan}}
spec:
  clientTemplateRef: {apiVersion: networking.liqo.io/v1beta1, kind: WgGatewayClientTemplate, name: wireguard-client, namespace: liqo}
  secretRef: {name: gw-keys}
  endpoint: {addresses: ["%s"], port: 30742, protocol: UDP}
  mtu: 1340`
)

// connectDeclaratively applies one manifest on each side, the client's first: nothing is ready
// for it then.
func connectDeclaratively(t *testing.T) {
	restored := nodesAsBefore(t)
	romeKey, milanKey := newKey(t), newKey(t)
	side := func(peer cluster, own, theirs key, gateway string) string {
		external := peer.kubectl(t, "-n", "liqo", "get", "networks.ipam.liqo.io", "external-cidr", "-o=jsonpath={.status.cidr}")
		return fmt.Sprintf(declared, peer.name, podCIDR, external, own.private, own.public, theirs.public, gateway)
	}
	manifests := map[*cluster]string{
		&rome:  side(milan, romeKey, milanKey, fmt.Sprintf(declaredClient, nodeAddress(t, milan, "n1"))),
		&milan: side(rome, milanKey, romeKey, declaredServer),
	}
	for _, c := range []*cluster{&rome, &milan} {
		c.apply(t, manifests[c])
	}
	connections(t, "to-milan gw-client Client Connected", "to-rome gw-server Server Connected")
	reach(t)
	for _, c := range []*cluster{&rome, &milan} {
		file := filepath.Join(t.TempDir(), "manifest.yaml")
		if err := os.WriteFile(file, []byte(manifests[c]), 0o600); err != nil {
			t.Fatal(err)
		}
		c.kubectl(t, "delete", "-f", file, patiently)
	}
	restored()
}

// entry is a user's own way to the gateway of a peer.
const entry = `
apiVersion: v1
kind: Service
metadata: {name: entry, namespace: default}
spec:
  type: NodePort
  ports: [{port: 51840, nodePort: 30743, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: entry, namespace: default, labels: {kubernetes.io/service-name: entry}}
addressType: IPv4
ports: [{port: 51840, protocol: TCP}]
endpoints: [{addresses: [%s]}]
`

// connectOverTCP connects two clusters between which no UDP packet passes, with a server that only its
// own cluster knows and a way to it that somebody else made.
func connectOverTCP(t *testing.T) {
	restored := nodesAsBefore(t)
	onTestbed(t, "fault", "drop", "rome", "milan", "--port", "udp", "--both")
	network(t, "connect", "--server-service-type", "ClusterIP", "--gw-protocol", "TCP",
		"--gw-client-address", nodeAddress(t, milan, "n1"), "--gw-client-port", "30743", "--wait=false")
	milan.rolled(t)
	milan.apply(t, fmt.Sprintf(entry, eventually(t, "the server's pod", func() (string, bool) {
		got, err := milan.ask("-n", "liqo-tenant-rome", "get", "internalfabrics", "-o", "jsonpath={.items[0].spec.gatewayIP}")
		return got, err == nil && got != ""
	})))
	reach(t)
	milan.kubectl(t, "delete", "service,endpointslice", "entry", "-n", "default")
	onTestbed(t, "fault", "heal")
	network(t, "reset", "--wait", "--skip-confirm")
	restored()
}

// connectBehindNAT: milan can be reached by one mapped port of a public address, known by a name.
// Then it moves: the NAT goes and the name gets the address of a node.
func connectBehindNAT(t *testing.T) {
	restored := nodesAsBefore(t)
	public := strings.TrimSpace(onTestbed(t, "nat", "on", "milan"))
	onTestbed(t, "nat", "forward", "milan", "udp/30742", "n1:30742")
	onTestbed(t, "dns", "set", "milan-gw.test", public)
	network(t, "connect", "--server-service-type", "NodePort", "--node-port", "30742", "--gw-client-address", "milan-gw.test")
	reach(t)
	onTestbed(t, "nat", "forward", "milan", "udp/30743", "n1:30743")
	network(t, "connect", "--server-service-type", "NodePort", "--node-port", "30743", "--gw-client-address", "milan-gw.test")
	reach(t)
	onTestbed(t, "nat", "off", "milan")
	onTestbed(t, "dns", "set", "milan-gw.test", nodeAddress(t, milan, "n2"))
	reach(t)
	onTestbed(t, "dns", "unset", "milan-gw.test")
	network(t, "reset", "--wait", "--skip-confirm")
	restored()
}

// morePods is a range of pods that a cluster gets later, and tells before the one it had: by name.
const morePods = `
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata:
  name: a-second-pod-cidr
  namespace: liqo
  labels: {ipam.liqo.io/network-type: pod-cidr, ipam.liqo.io/network-not-remapped: "true", ipam.liqo.io/network-shared: "true"}
spec: {cidr: 10.99.0.0/16}
`

// serverAtConsumer peers with the tunnel's server at rome, behind a load balancer whose address changes.
// Then keys and ranges of pods change. The other side follows by itself, and a connection of pods outlives all
// of it.
func serverAtConsumer(t *testing.T) {
	restored := nodesAsBefore(t)
	const asked, moved = "172.31.11.66", "172.31.11.77"
	rome.must(t, "peer", "--remote-kubeconfig", milan.kubeconfig, "--gw-server-service-location", "Consumer", "--gw-server-service-type", "LoadBalancer",
		"--load-balancer-ip", asked)
	address := func(want string) {
		t.Helper()
		follows(t, milan, "gatewayclients", ".spec.endpoint.addresses[0]", func(got string) bool { return got == want })
		reach(t)
	}
	address(asked)
	stays := connected(t)
	rome.kubectl(t, "-n", "liqo-tenant-milan", "annotate", "service", "gw-milan", "testbed/address="+moved)
	address(moved)

	changesReach(t, rome)
	changesReach(t, milan)
	stays("the parameters changed")
	rome.must(t, "unpeer", "--remote-kubeconfig", milan.kubeconfig)
	nothingLeft(t)
	restored()
}

// parametersChange, with the tunnel's server at the provider.
func parametersChange(t *testing.T) {
	stays := connected(t)
	changesReach(t, rome)
	changesReach(t, milan)
	endpointsFollow(t)
	stays("the parameters changed")
}

// endpointsFollow changes where and how milan's server listens. The client at rome follows.
func endpointsFollow(t *testing.T) {
	t.Helper()
	for _, c := range []struct {
		endpoint, protocol string
		several            int // ports, in place of one
	}{
		{`{"port":51850,"protocol":"TCP"}`, "TCP", 0},
		{`{"port":null,"ports":[51840,51841]}`, "TCP", 2},
		{`{"protocol":"UDP"}`, "UDP", 2},
		{`{"port":51840,"ports":null}`, "UDP", 0},
	} {
		milan.kubectl(t, "-n", "liqo-tenant-rome", "patch", "gatewayservers", "rome", "--type=merge", "-p", `{"spec":{"endpoint":`+c.endpoint+`}}`)
		follows(t, rome, "gatewayclients", ".spec.endpoint", func(got string) bool {
			var dialled struct {
				Protocol string
				Ports    []int
			}
			return json.Unmarshal([]byte(got), &dialled) == nil && dialled.Protocol == c.protocol && len(dialled.Ports) == c.several
		})
		milan.rolled(t)
		rome.rolled(t)
		reach(t)
		announced := milan.kubectl(t, "-n", "liqo-tenant-rome", "get", "gatewayservers", "rome", "-o", "jsonpath={.status.endpoint}")
		follows(t, rome, "gatewayclients", ".spec.endpoint", func(got string) bool { return got == announced })
	}
}

// changesReach gives a cluster another key, and more pods for a while. The peer follows by itself.
func changesReach(t *testing.T, c cluster) {
	t.Helper()
	peer := other(c)
	old := peer.kubectl(t, "-n", "liqo-tenant-"+c.name, "get", "publickeies", "-o", "jsonpath={.items[0].spec.publicKey}")
	c.replace(t, "liqo-tenant-"+peer.name, "secret/gw-"+peer.name)
	follows(t, peer, "publickeies", ".spec.publicKey", func(got string) bool { return got != old })
	c.rolled(t)
	reach(t)

	ranges := func(n int) {
		t.Helper()
		follows(t, peer, "configurations", ".status.remote.cidr.pod[*]", func(got string) bool { return len(strings.Fields(got)) == n })
	}
	c.apply(t, morePods)
	ranges(2)
	reach(t)
	c.kubectl(t, "-n", "liqo", "delete", "networks.ipam.liqo.io", "a-second-pod-cidr", patiently)
	ranges(1)
}

// follows waits until what a cluster knows of its peer is as it should be.
func follows(t *testing.T, c cluster, kind, field string, as func(got string) bool) {
	t.Helper()
	eventually(t, c.name+" follows with "+kind+field, func() (string, bool) {
		got, err := c.ask("-n", "liqo-tenant-"+other(c).name, "get", kind, "-o", "jsonpath={.items[0]"+field+"}")
		return got, err == nil && as(got)
	})
}

// onTestbed runs a verb of the test clusters.
func onTestbed(t *testing.T, verb string, args ...string) string {
	t.Helper()
	out, err := testbed(verb, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// key is a pair of WireGuard keys, in base64.
type key struct{ private, public string }

// newKey makes a pair of keys by the commands of the mission.
func newKey(t *testing.T) key {
	t.Helper()
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", `
openssl genpkey -algorithm X25519 -outform der -out private.der
openssl pkey -inform der -in private.der -pubout -outform der -out public.der
cat private.der | tail -c 32 | base64
cat public.der | tail -c 32 | base64`)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(out))
	return key{lines[0], lines[1]}
}

func nodeAddress(t *testing.T, c cluster, node string) string {
	t.Helper()
	return c.kubectl(t, "get", "nodes", c.name+"-"+node, "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
}

// network runs a verb of liqoctl network from rome towards milan.
func network(t *testing.T, verb string, args ...string) string {
	t.Helper()
	_, stderr := rome.must(t, append([]string{"network", verb, "--remote-kubeconfig", milan.kubeconfig}, args...)...)
	return stderr
}

// connections waits until each cluster has exactly this Connection: namespace, name, type, status.
func connections(t *testing.T, atRome, atMilan string) {
	t.Helper()
	for c, want := range map[*cluster]string{&rome: atRome, &milan: atMilan} {
		eventually(t, "connection at "+c.name, func() (string, bool) {
			got, err := c.ask("get", "connections", "-A", "--no-headers")
			return got, err == nil && strings.HasPrefix(strings.Join(strings.Fields(got), " "), want+" ")
		})
	}
}

// reach sends from every node of each cluster to every node of the other.
func reach(t *testing.T) {
	t.Helper()
	meet(t, rome, milan)
}

// meet waits until the probes of two clusters reach each other.
func meet(t *testing.T, a, b cluster) {
	t.Helper()
	for _, way := range []struct{ from, to cluster }{{a, b}, {b, a}} {
		targets := remapped(t, way.from, way.to, pods(t, way.to, "probe", "{.status.podIP}"))
		for _, source := range pods(t, way.from, "probe", "{.metadata.name}") {
			for _, target := range targets {
				eventually(t, source+" reaches "+target, func() (string, bool) {
					got, err := way.from.ask("exec", source, "--", "/echo", "get", "-timeout", "2s", "http://"+target+":8080/")
					return got, err == nil
				})
			}
		}
	}
}

// everyPathIsTested lets liqoctl try all paths, with UDP between the clusters blocked and without. On a slow machine the
// provider is lost before pods run there, and no path can be tried.
func everyPathIsTested(t *testing.T) {
	args := []string{"test", "network", "--remote-kubeconfigs", milan.kubeconfig}
	onTestbed(t, "fault", "drop", "rome", "milan", "--port", "udp", "--both")
	stdout, stderr, code := rome.liqoctl(t, append(args, "--basic", "--fail-fast", "--timeout=2m")...)
	onTestbed(t, "fault", "heal")
	if told := regexp.MustCompile("some checks failed|the provider cannot be reached|no node takes pod"); code != 1 || !told.MatchString(stderr) {
		t.Errorf("with UDP blocked: exit code %d\n%s%s", code, stdout, stderr)
	}
	connections(t, "liqo-tenant-milan gw-milan Client Connected", "liqo-tenant-rome gw-rome Server Connected")
	milan.apply(t, fmt.Sprintf(outside, 80))
	milan.kubectl(t, "wait", "pod/outside", "--for=condition=Ready", patiently)
	stdout, _ = rome.must(t, append(args, "--pod-np", "--np-ext", "--lb", "--ip", "--ip-address", nodeAddress(t, milan, "n1"), "--info", "--rm")...)
	for _, c := range []cluster{rome, milan} {
		if sees := regexp.MustCompile(`Peers as ` + c.name + ` sees them [^└]*Pods: +10\.10\.0\.0/16 as 10\.`); !sees.MatchString(stdout) {
			t.Errorf("how %s sees addresses was not printed:\n%s", c.name, stdout)
		}
	}
	milan.kubectl(t, "delete", "pod", "outside", patiently)
}

// asBefore looks now, and returns a function that waits until what is seen is the same again.
func asBefore(t *testing.T, look func() (string, error)) (restored func()) {
	t.Helper()
	before, err := look()
	if err != nil {
		t.Fatalf("%v\n%s", err, before)
	}
	return func() {
		t.Helper()
		eventually(t, "nodes look as before", func() (string, bool) {
			now, err := look()
			return "before:\n" + before + "\nnow:\n" + now, err == nil && now == before
		})
	}
}

// kernelsAsBefore looks at all nodes, and returns a function that waits until they look so again:
// links, addresses, rules, routes, forwarding entries and tables of ours, and what of it lies on
// devices of others.
func kernelsAsBefore(t *testing.T) (restored func()) {
	t.Helper()
	return asBefore(t, func() (string, error) {
		var all strings.Builder
		for _, c := range []cluster{rome, milan} {
			for _, node := range []string{"n1", "n2"} {
				out, err := testbed("exec", c.name, node, "--", "sh", "-c", ours)
				if err != nil {
					return out, err
				}
				fmt.Fprintf(&all, "%s-%s:\n%s", c.name, node, out)
			}
		}
		return all.String(), nil
	})
}

// nodesAsBefore is kernelsAsBefore, and no object of a network is left.
func nodesAsBefore(t *testing.T) (restored func()) {
	t.Helper()
	same := kernelsAsBefore(t)
	return func() {
		t.Helper()
		same()
		// What was made of a gateway goes after it, with the garbage collector.
		for _, c := range []cluster{rome, milan} {
			eventually(t, "nothing is left at "+c.name, func() (string, bool) {
				objects, err := c.ask("get", "connections,gatewayservers,gatewayclients,wggatewayservers,wggatewayclients,internalfabrics,publickeies,configurations", "-A", "-o", "name")
				made, failed := c.ask("get", "deployments,services,secrets", "-A", "-l", "networking.liqo.io/gateway-name", "-o", "name")
				return objects + made, err == nil && failed == nil && objects+made == ""
			})
		}
	}
}

// ours prints what a node's kernel holds of ours, without counters and ages.
const ours = `
ip -o address show dev liqo.ovl 2>/dev/null
bridge fdb show dev liqo.ovl 2>/dev/null | sort
ip -o link show type vxlan
ip neighbour show nud permanent | sort
bridge fdb show | grep -F liqo
ip rule
ip -6 rule
ip route show table all | grep -F -e liqo -e 'table 6091'
ip -6 route show table all | grep -F liqo
nft list tables | grep -F liqo
nft -s list table inet liqo 2>/dev/null
true`

// monitors prints, for %d seconds, what is written to the kernel of a node and of the gateways on it.
const monitors = `
for p in 1 $(pgrep -x liqo); do
  [ $p = 1 ] || [ $(readlink /proc/$p/ns/net) != $(readlink /proc/1/ns/net) ] || continue
  echo watching $p
  timeout %[1]d nsenter -t $p -n ip monitor link address route rule &
  timeout %[1]d nsenter -t $p -n ip monitor neigh | grep -F PERMANENT | sed 's/^/liqo: /' &
  timeout %[1]d nsenter -t $p -n bridge monitor fdb | grep -F -e liqo -e permanent | sed 's/^/liqo: /' &
  timeout %[1]d nsenter -t $p -n nft monitor &
done
wait`

// changesMade counts what fabrics and gateways say they changed, peers and keys of tunnels among it, which no
// monitor shows.
func changesMade(t *testing.T) map[string]int {
	t.Helper()
	made := map[string]int{}
	for _, c := range []cluster{rome, milan} {
		for _, selector := range []string{"app.kubernetes.io/name=fabric", "networking.liqo.io/component=gateway"} {
			for line := range strings.Lines(c.kubectl(t, "get", "pods", "-A", "-l", selector, "-o", `jsonpath={range .items[*]}{.metadata.namespace} {.metadata.name}{"\n"}{end}`)) {
				pod := strings.Fields(line)
				made[c.name+" "+pod[1]] = strings.Count(c.kubectl(t, "-n", pod[0], "logs", pod[1], "--tail=-1"), "Changing the network")
			}
		}
	}
	return made
}

// tunnelPorts are the ports gateways have tunnels on: a client that dials anew takes another one.
func tunnelPorts(t *testing.T) string {
	t.Helper()
	ports := ""
	for _, c := range []cluster{rome, milan} {
		out, err := c.inGateway(activeGateway(t, c), "ss -Huln | awk '{print $4}' | sort")
		if err != nil || out == "" {
			t.Fatalf("the ports of the gateway of %s: %v\n%s", c.name, err, out)
		}
		ports += c.name + ":\n" + out
	}
	return ports
}

// nothingIsWritten fails for what is written while nobody asks for anything. A machine that starves a gateway for
// longer than its pings wait makes the client dial anew, which is a change: then it watches again.
func nothingIsWritten(t *testing.T) {
	eventually(t, "no client dials anew for a while, and nothing is written meanwhile", func() (string, bool) {
		written, dialed := writes(t)
		text := strings.Join(written, "\n")
		if text != "" && !dialed {
			t.Fatalf("though nothing changed:\n%s", text)
		}
		return text, text == ""
	})
}

// writes watches the kernels of all nodes and gateways, and tells whether a client dialed anew meanwhile.
func writes(t *testing.T) (written []string, dialed bool) {
	t.Helper()
	before, ports := changesMade(t), tunnelPorts(t)
	d := 20 * time.Second
	if *soak {
		d = 5 * time.Minute
	}
	var all sync.WaitGroup
	var watched atomic.Int32
	lines := make(chan string, 1000)
	for _, c := range []cluster{rome, milan} {
		for _, node := range []string{"n1", "n2"} {
			all.Go(func() {
				out, err := testbed("exec", c.name, node, "--", "sh", "-c", fmt.Sprintf(monitors, int(d.Seconds())))
				if err != nil {
					t.Errorf("%s-%s: %v\n%s", c.name, node, err, out)
				}
				watched.Add(int32(strings.Count(out, "watching ")))
				for line := range strings.Lines(out) {
					if strings.Contains(line, "liqo") || strings.Contains(line, "lookup") {
						select {
						case lines <- fmt.Sprintf("%s-%s: %s", c.name, node, line):
						default: // a thousand tell enough
						}
					}
				}
			})
		}
	}
	all.Wait()
	close(lines)
	for line := range lines {
		written = append(written, line)
	}
	if n := watched.Load(); n < 4+2 {
		t.Errorf("%d places were watched; there are four nodes and two gateways at least", n)
	}
	now := tunnelPorts(t)
	if dialed = now != ports; dialed {
		written = append(written, fmt.Sprintf("tunnels had the ports\n%s\nand have\n%s", ports, now))
	}
	after := changesMade(t)
	for pod, n := range before {
		if n == 0 || after[pod] != n {
			written = append(written, fmt.Sprintf("%s told of %d changes since it began, then of %d", pod, n, after[pod]))
		}
	}
	if len(before) < 4+2 {
		t.Errorf("%d pods were asked; there are four fabrics and two gateways at least", len(before))
	}
	return written, dialed
}

// connectByTemplates connects with templates users start from, and by two ports: a second run of connect
// changes the templates of gateways that exist.
func connectByTemplates(t *testing.T) {
	restored := nodesAsBefore(t)
	files := []string{"two-replicas", "target-port", "no-ping", "tcp"}
	for _, c := range []cluster{rome, milan} {
		for _, file := range files {
			text, err := os.ReadFile(filepath.Join(root, "examples", "networking", file+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			c.apply(t, strings.ReplaceAll(string(text), "imagePullPolicy: IfNotPresent", "imagePullPolicy: Never"))
		}
	}
	with := func(server, client string, more ...string) {
		t.Helper()
		network(t, "connect", append([]string{"--server-service-type", "NodePort",
			"--gw-server-template-name", "wireguard-server-" + server, "--gw-client-template-name", "wireguard-client-" + client}, more...)...)
		reach(t)
	}
	with("target-port", "two-replicas", "--node-port", "30742")
	if got := milan.kubectl(t, "-n", "liqo-tenant-rome", "get", "service", "gw-rome", "-o", "jsonpath={.spec.ports[0].targetPort}"); got != "51820" {
		t.Errorf("the server's pods listen on port %s", got)
	}
	with("two-replicas", "two-replicas", "--server-port", "51840,51841", "--node-port", "30742,30743")
	eventually(t, "the client has two ready replicas", func() (string, bool) {
		got, err := rome.ask("-n", "liqo-tenant-milan", "get", "deployment", "gw-milan", "-o", "jsonpath={.status.readyReplicas}")
		return got, err == nil && got == "2"
	})
	with("no-ping", "no-ping", "--server-port", "51840", "--node-port", "30742")
	with("tcp", "tcp")
	network(t, "reset", "--wait", "--skip-confirm")
	for _, c := range []cluster{rome, milan} {
		c.kubectl(t, "-n", "liqo", "delete", "wggatewayservertemplates,wggatewayclienttemplates", "--field-selector",
			"metadata.name!=wireguard-server,metadata.name!=wireguard-client")
	}
	restored()
}

// fancy is a technology of somebody else: a kind, a template that names it, and the controller's right to
// it, which the chart's value networking.serverResources gives.
const fancy = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fancies.vpn.example.com}
spec:
  group: vpn.example.com
  scope: Namespaced
  names: {kind: Fancy, plural: fancies, singular: fancy}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: networking.liqo.io/v1beta1
kind: WgGatewayServerTemplate
metadata: {name: fancy, namespace: liqo}
spec:
  objectKind: {apiVersion: vpn.example.com/v1, kind: Fancy}
  template: {spec: {listen: "{{ .Spec.Endpoint.Port }}"}}
---
apiVersion: networking.liqo.io/v1beta1
kind: WgGatewayClientTemplate
metadata: {name: fancy, namespace: liqo}
spec:
  objectKind: {apiVersion: vpn.example.com/v1, kind: Fancy}
  template: {spec: {dial: "{{ index .Spec.Endpoint.Addresses 0 }}:{{ .Spec.Endpoint.Port }}"}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: fancies}
rules: [{apiGroups: [vpn.example.com], resources: [fancies], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: fancies}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: fancies}
subjects: [{kind: ServiceAccount, name: liqo-controller-manager, namespace: liqo}]
`

const fancyServer = `
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: rome, namespace: liqo-tenant-rome, labels: {liqo.io/remote-cluster-id: rome}}
spec:
  serverTemplateRef: {name: fancy}
  endpoint: {port: 4500, serviceType: NodePort}
`

// fancyConnection is what a gateway of another technology says of its tunnel.
const fancyConnection = `
apiVersion: networking.liqo.io/v1beta1
kind: Connection
metadata: {name: gw-rome, namespace: liqo-tenant-rome, labels: {liqo.io/remote-cluster-id: rome}}
spec:
  type: Server
  gatewayRef: {apiVersion: vpn.example.com/v1, kind: Fancy, name: rome, namespace: liqo-tenant-rome}
`

const fancyClient = `
apiVersion: networking.liqo.io/v1beta1
kind: GatewayClient
metadata: {name: rome, namespace: liqo-tenant-rome, labels: {liqo.io/remote-cluster-id: rome}}
spec:
  clientTemplateRef: {name: fancy}
  endpoint: {addresses: [203.0.113.7], port: 4500}
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: liqo-tenant-rome}
data: {publicKey: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}
`

// connectByAnotherTechnology: milan's server is of a kind Liqo does not know. It is rendered; where it is,
// as its status says, is told to clients, and milan's nodes are joined to its pod. Likewise a client, whose key
// peers are given.
func connectByAnotherTechnology(t *testing.T) {
	restored := nodesAsBefore(t)
	milan.apply(t, fancy)
	network(t, "init")
	milan.apply(t, fancyServer)
	eventually(t, "the server is rendered", func() (string, bool) {
		got, err := milan.ask("-n", "liqo-tenant-rome", "get", "fancies", "rome", "-o", "jsonpath={.spec.listen}")
		return got, err == nil && got == "4500"
	})
	pod := pods(t, milan, "probe", "{.status.podIP}")[0] // whatever is in it
	milan.kubectl(t, "-n", "liqo-tenant-rome", "patch", "fancies", "rome", "--subresource=status", "--type=merge", "-p", fmt.Sprintf(
		`{"status":{"endpoint":{"addresses":["172.31.20.11"],"port":4500,"protocol":"UDP"},"internalEndpoint":{"ip":%q,"node":"milan-n1"},"secretRef":{"name":"key","namespace":"liqo-tenant-rome"}}}`, pod))
	eventually(t, "clients are told where the server is", func() (string, bool) {
		got, err := milan.ask("-n", "liqo-tenant-rome", "get", "gatewayservers", "rome", "-o", "jsonpath={.status.endpoint.addresses[0]}:{.status.endpoint.port} {.status.serverRef.kind}")
		return got, err == nil && got == "172.31.20.11:4500 Fancy"
	})
	milan.must(t, "create", "gatewayserver", "rome", "--remote-cluster-id", "rome", "--template-name", "fancy", "--port", "4500", "--service-type", "NodePort", "--wait")
	milan.apply(t, fancyConnection)
	milan.kubectl(t, "-n", "liqo-tenant-rome", "patch", "connections", "gw-rome", "--subresource=status", "--type=merge", "-p", `{"status":{"value":"Connected"}}`)
	eventually(t, "milan says that the gateway of the other technology is well", func() (string, bool) {
		got, err := milan.ask("get", "foreignclusters", "rome", "-o", `jsonpath={range .status.modules.networking.conditions[*]}{.type}={.status} {end}`)
		return got, err == nil && strings.HasSuffix(got, "NetworkGatewayServerStatus=Ready NetworkConnectionStatus=Established")
	})
	milan.kubectl(t, "-n", "liqo-tenant-rome", "delete", "connections", "gw-rome")
	for _, node := range []string{"n1", "n2"} {
		eventually(t, node+" is joined to the pod", func() (string, bool) {
			out, err := testbed("exec", milan.name, node, "--", "bridge", "fdb", "show", "dev", "liqo.ovl")
			return out, err == nil && strings.Contains(out, "dst "+pod)
		})
	}
	peer := remapped(t, milan, rome, []string{insider})[0]
	milan.seen(t, "any", "udp dst port 6091", " > "+pod+".6091:", func() {
		testbed("exec", milan.name, "n2", "--", "ping", "-c", "1", "-W", "1", peer) // nothing there answers
	})
	milan.kubectl(t, "-n", "liqo-tenant-rome", "delete", "gatewayservers", "rome", patiently)
	eventually(t, "what was rendered is gone", func() (string, bool) {
		got, err := milan.ask("-n", "liqo-tenant-rome", "get", "fancies", "-o", "name")
		return got, err == nil && got == ""
	})

	milan.apply(t, fancyClient)
	eventually(t, "the client is rendered", func() (string, bool) {
		got, err := milan.ask("-n", "liqo-tenant-rome", "get", "fancies", "rome", "-o", "jsonpath={.spec.dial}")
		return got, err == nil && got == "203.0.113.7:4500"
	})
	milan.kubectl(t, "-n", "liqo-tenant-rome", "patch", "fancies", "rome", "--subresource=status", "--type=merge", "-p", fmt.Sprintf(
		`{"status":{"internalEndpoint":{"ip":%q,"node":"milan-n1"},"secretRef":{"name":"key","namespace":"liqo-tenant-rome"}}}`, pod))
	for _, node := range []string{"n1", "n2"} {
		eventually(t, node+" is joined to the client's pod", func() (string, bool) {
			out, err := testbed("exec", milan.name, node, "--", "bridge", "fdb", "show", "dev", "liqo.ovl")
			return out, err == nil && strings.Contains(out, "dst "+pod)
		})
	}
	milan.must(t, "create", "gatewayclient", "rome", "--remote-cluster-id", "rome", "--template-name", "fancy", "--addresses", "203.0.113.7", "--port", "4500", "--wait")
	eventually(t, "the client's key can be given", func() (string, bool) {
		stdout, stderr, code := milan.liqoctl(t, "generate", "publickey", "--gateway-type", "client", "--gateway-name", "rome")
		return stdout + stderr, code == 0 && strings.Contains(stdout, "publicKey: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	})
	milan.kubectl(t, "-n", "liqo-tenant-rome", "delete", "gatewayclients", "rome", patiently)

	network(t, "reset", "--wait", "--skip-confirm")
	milan.kubectl(t, "delete", "customresourcedefinition/fancies.vpn.example.com", "clusterrole/fancies", "clusterrolebinding/fancies")
	milan.kubectl(t, "-n", "liqo", "delete", "wggatewayservertemplates/fancy", "wggatewayclienttemplates/fancy")
	milan.kubectl(t, "-n", "liqo-tenant-rome", "delete", "secret", "key", "--ignore-not-found")
	restored()
}
