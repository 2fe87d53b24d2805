// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"fmt"
	"strings"
	"testing"
)

// guard drops what goes to a port of pods, where the category says: in gateways or on nodes.
const guard = `
apiVersion: networking.liqo.io/v1beta1
kind: FirewallConfiguration
metadata: {name: guard, namespace: liqo, labels: {networking.liqo.io/firewall-category: %s}}
spec:
  table:
    name: guard
    family: IPV4
    chains:
    - name: forward
      type: filter
      hook: forward
      policy: accept
      priority: 10
      rules:
        filterRules:
        - name: no-tcp-9000
          action: drop
          match:
          - {op: eq, proto: {value: tcp}}
          - {op: eq, port: {value: "9000", position: dst}}
`

// usersRulesAct: a rule of milan's administrator keeps the peer from a port, in the gateways or on the
// nodes; every host says that it has it, and nothing of it is left afterwards.
func usersRulesAct(t *testing.T) {
	restored := tables(t)
	target := remapped(t, rome, milan, pods(t, milan, "probe", "{.status.podIP}"))[0]
	source := pods(t, rome, "probe", "{.metadata.name}")[0]
	reaches := func(want bool, port string, args ...string) {
		t.Helper()
		eventually(t, fmt.Sprintf("port %s is reached: %t", port, want), func() (string, bool) {
			got, err := rome.ask(append([]string{"exec", source, "--", "/echo"}, args...)...)
			return got, (err == nil) == want
		})
	}
	tcp := []string{"tcp", "-n", "1", "-timeout", "1s", target + ":9000"}
	reaches(true, "9000", tcp...)
	for category, hosts := range map[string]int{"gateway": 1, "fabric": 2} {
		milan.apply(t, fmt.Sprintf(guard, category))
		reaches(false, "9000", tcp...)
		reaches(true, "8080", "get", "-timeout", "2s", "http://"+target+":8080/")
		milan.hostsHave(t, hosts, "firewallconfigurations", "guard")
		milan.kubectl(t, "-n", "liqo", "delete", "firewallconfigurations", "guard", patiently)
		reaches(true, "9000", tcp...)
	}
	restored()
}

// hostsHave waits until so many hosts say that they have what a user's object holds, and none that it has not.
func (c cluster) hostsHave(t *testing.T, hosts int, kind, name string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d hosts say that they have %s", hosts, name), func() (string, bool) {
		got, err := c.ask("-n", "liqo", "get", kind, name, "-o", `jsonpath={range .status.conditions[*]}{.host}={.status} {end}`)
		return got, err == nil && strings.Count(got, "=True") == hosts && !strings.Contains(got, "=False")
	})
}

// detour leads to a range by a device, where the category says.
const detour = `
apiVersion: networking.liqo.io/v1beta1
kind: RouteConfiguration
metadata: {name: detour, namespace: liqo, labels: {networking.liqo.io/route-category: %s}}
spec: {table: {name: detour, rules: [{dst: 198.51.100.0/24, routes: [{dst: 198.51.100.0/24, dev: %s}]}]}}
`

// usersRoutesAct: what milan's administrator sends another way goes there, from gateways or from nodes.
func usersRoutesAct(t *testing.T) {
	restored := kernelsAsBefore(t)
	const ask = "ip route get 198.51.100.7"
	at := activeGateway(t, milan)
	for _, c := range []struct {
		category, device string
		hosts            int
		way              func() (string, error)
	}{
		{"gateway", "eth0", 1, func() (string, error) { return milan.inGateway(at, ask) }},
		{"fabric", "cni0", 2, func() (string, error) { return testbed("exec", "milan", "n1", "--", "sh", "-c", ask) }},
	} {
		direct := func(want bool) {
			t.Helper()
			eventually(t, fmt.Sprintf("the %s sends directly by %s: %t", c.category, c.device, want), func() (string, bool) {
				got, err := c.way()
				return got, err == nil && strings.HasPrefix(got, "198.51.100.7 dev "+c.device+" ") == want
			})
		}
		direct(false)
		milan.apply(t, fmt.Sprintf(detour, c.category, c.device))
		milan.hostsHave(t, c.hosts, "routeconfigurations", "detour")
		direct(true)
		milan.kubectl(t, "-n", "liqo", "delete", "routeconfigurations", "detour", patiently)
		direct(false)
	}
	restored()
}

// tables looks at the nft tables of milan's nodes, and returns a function that waits until they are the
// same again.
func tables(t *testing.T) (restored func()) {
	return asBefore(t, func() (string, error) {
		var all strings.Builder
		for _, node := range []string{"n1", "n2"} {
			out, err := testbed("exec", milan.name, node, "--", "nft", "list", "tables")
			if err != nil {
				return out, err
			}
			all.WriteString(out)
		}
		return all.String(), nil
	})
}

// outside is a host that is no pod of milan's, and answers HTTP on a port: a node, which peers do not reach.
const outside = `
apiVersion: v1
kind: Pod
metadata: {name: outside, namespace: default}
spec:
  hostNetwork: true
  nodeName: milan-n1
  terminationGracePeriodSeconds: 0
  containers:
  - {name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never, args: [serve, -http, ":%d", -tcp, ":19000", -udp, ":19000"]}
`

const outsideIP = `
apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata: {name: outside, namespace: default}
spec: {ip: %s, masquerade: %t, serviceTemplate: {spec: {ports: [{port: 80, targetPort: 18080}]}}}
`

// externalHostIsReached: milan gives its peers an address for a host outside its pods, and its own pods a
// Service. With masquerade the host sees a node or gateway of milan as who asks, without it rome's pod. Without
// the IP it is not reached.
func externalHostIsReached(t *testing.T) {
	host := nodeAddress(t, milan, "n1")
	source := pods(t, rome, "probe", "{.metadata.name}")[0]
	asker := "from=" + remapped(t, milan, rome, pods(t, rome, "probe", "{.status.podIP}"))[0] + ":"
	for _, masquerade := range []bool{true, false} {
		milan.apply(t, fmt.Sprintf(outside, 18080))
		milan.apply(t, fmt.Sprintf(outsideIP, host, masquerade))
		milan.kubectl(t, "wait", "pod/outside", "--for=condition=Ready", patiently)
		own := eventually(t, "the address peers use", func() (string, bool) {
			got, err := milan.ask("get", "ips.ipam.liqo.io", "outside", "-o", "jsonpath={.status.ip}")
			return got, err == nil && got != ""
		})
		addr := external(t, rome, milan, own)
		eventually(t, fmt.Sprintf("rome reaches the host by %s, masquerade %t", addr, masquerade), func() (string, bool) {
			got, err := rome.ask("exec", source, "--", "/echo", "get", "-timeout", "2s", "http://"+addr+":18080/")
			return got, err == nil && strings.Contains(got, "pod="+milan.name+"-n1 ") && strings.Contains(got, asker) != masquerade
		})
		eventually(t, "milan reaches the host by its Service", func() (string, bool) {
			got, err := milan.ask("exec", pods(t, milan, "probe", "{.metadata.name}")[0], "--", "/echo", "get", "-timeout", "2s", "http://outside/")
			return got, err == nil && strings.Contains(got, "pod="+milan.name+"-n1 ")
		})
		milan.kubectl(t, "delete", "ips.ipam.liqo.io", "outside", patiently)
		eventually(t, "the host is out of reach", func() (string, bool) {
			got, err := rome.ask("exec", source, "--", "/echo", "get", "-timeout", "1s", "http://"+addr+":18080/")
			return got, err != nil
		})
		milan.kubectl(t, "delete", "pod", "outside", patiently)
	}
}

// caller asks the API server of its home from next door.
const caller = `
apiVersion: v1
kind: Pod
metadata: {name: caller, namespace: shop}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {liqo.io/type: virtual-node}
  containers: [{name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never}]
`

// apiServerByEndpoints: with the setting, pods next door are told the port of the home API server's endpoints,
// not that of its Service, and reach it there; without it again all is as it was.
func apiServerByEndpoints(t *testing.T) {
	for _, c := range []struct {
		setting bool
		port    string
	}{{true, "6443"}, {false, "443"}} {
		rome.must(t, rome.installation(fmt.Sprintf("networking.apiServerAccessThroughEndpointSlices=%t", c.setting))...)
		rome.kubectl(t, "-n", "liqo", "rollout", "status", "deployment/liqo-controller-manager", patiently)
		eventually(t, fmt.Sprintf("a pod next door is told of port %s and is answered there", c.port), func() (string, bool) {
			rome.apply(t, caller)
			defer rome.kubectl(t, "-n", "shop", "delete", "pod", "caller", patiently)
			if got, err := rome.ask("-n", "shop", "wait", "pod/caller", "--for=condition=Ready", patiently); err != nil {
				return got, false
			}
			port, err := milan.ask("-n", "shop-rome", "get", "pod", "caller", "-o", `jsonpath={.spec.containers[0].env[?(@.name=="KUBERNETES_SERVICE_PORT")].value}`)
			if err != nil || port != c.port {
				return "port " + port, false
			}
			// The pod's program does not know the server's CA, so a certificate for the right name is an answer.
			answer, failure, err := command("kubectl", "--kubeconfig", rome.kubeconfig, "-n", "shop", "exec", "caller", "--",
				"/echo", "get", "-timeout", "3s", "https://kubernetes.default:"+port+"/version")
			return answer + failure, err != nil && strings.Contains(failure+answer, "certificate signed by unknown authority")
		})
	}
}

// external is an address of the owner's external CIDR as another cluster sees it.
func external(t *testing.T, viewer, owner cluster, addr string) string {
	t.Helper()
	view := viewer.kubectl(t, "get", "configurations", "-A", "-l", "liqo.io/remote-cluster-id="+owner.name,
		"-o", "jsonpath={.items[0].status.remote.cidr.external[0]}")
	head := strings.Join(strings.Split(view, ".")[:2], ".")
	return head + "." + strings.Join(strings.Split(addr, ".")[2:], ".")
}
