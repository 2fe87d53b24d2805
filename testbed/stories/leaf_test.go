// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package stories

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// leaf is a pod with a Service of its name, on the virtual node of a provider.
const leaf = `
apiVersion: v1
kind: Pod
metadata: {name: at-%[1]s, namespace: leaf, labels: {app: at-%[1]s}}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {liqo.io/remote-cluster-id: %[1]s}
  containers:
  - {name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never, ports: [{containerPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: at-%[1]s, namespace: leaf}
spec: {selector: {app: at-%[1]s}, ports: [{port: 80, targetPort: 8080}]}
---
`

// controlPlane is a pod on a node of turin that has a control plane's taint.
const controlPlane = `
apiVersion: v1
kind: Pod
metadata: {name: control-plane, namespace: default}
spec:
  nodeName: turin-n2
  terminationGracePeriodSeconds: 0
  tolerations: [{operator: Exists}]
  containers:
  - {name: echo, image: "testbed.local/echo:1", imagePullPolicy: Never, ports: [{containerPort: 8080}]}
`

// leafToLeaf: pods of rome at two providers that do not know each other reach each other through
// rome. All three clusters have the same addresses; turin's CNI gives pods addresses that its Nodes
// do not name, and masquerades what leaves them. One of turin's nodes is a control plane, from whose pods
// others next door are reached as from any.
func leafToLeaf(t *testing.T) {
	image := filepath.Join(root, "bin", "liqo-image.tar")
	if out, err := testbed("up", "--clusters", "turin", "--nodes", "2", "--cni", "turin=pool", "--image", image, shortLived); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	turin, err := known("turin")
	if err != nil {
		t.Fatal(err)
	}
	turin.kubectl(t, "taint", "node", "turin-n2", "node-role.kubernetes.io/control-plane=:NoSchedule")
	turin.apply(t, controlPlane)
	if stdout, stderr, code := turin.install(t); code != 0 {
		t.Fatalf("install on turin: exit code %d\n%s%s", code, stdout, stderr)
	}
	rome.must(t, "peer", "--remote-kubeconfig", turin.kubeconfig, "--gw-server-service-type", "NodePort", "--gw-server-service-location", "Consumer")
	rome.kubectl(t, "create", "namespace", "leaf")
	rome.must(t, "offload", "namespace", "leaf")
	providers := []string{"milan", "turin"}
	for _, p := range providers {
		rome.apply(t, fmt.Sprintf(leaf, p))
	}
	rome.kubectl(t, "-n", "leaf", "wait", "pods", "--all", "--for=condition=Ready", patiently)
	for i, from := range providers {
		to := providers[1-i]
		eventually(t, "the pod at "+from+" reaches the one at "+to, func() (string, bool) {
			got, err := rome.ask("-n", "leaf", "exec", "at-"+from, "--", "/echo", "get", "-timeout", "2s", "http://at-"+to+"/")
			return got, err == nil && strings.Contains(got, "pod=at-"+to+" ")
		})
	}
	rome.must(t, "test", "network", "--remote-kubeconfigs", milan.kubeconfig+","+turin.kubeconfig, "--rm")
	turin.kubectl(t, "wait", "pod/control-plane", "--for=condition=Ready", patiently)
	there := remapped(t, turin, rome, pods(t, rome, "probe", "{.status.podIP}"))[0]
	eventually(t, "a pod on a control plane of turin reaches one of rome", func() (string, bool) {
		got, err := turin.ask("exec", "control-plane", "--", "/echo", "get", "-timeout", "2s", "http://"+there+":8080/")
		return got, err == nil && strings.Contains(got, "pod=probe-")
	})
	turin.apply(t, probes)
	for _, daemons := range []string{"probe", "host"} {
		turin.kubectl(t, "rollout", "status", "daemonset/"+daemons, patiently)
	}
	reachEachOther(t, rome, turin)
	strangers(t, turin, milan)
	changesProvider(t, milan, turin)
	chain(t, turin)
	// What one provider loses does not touch the other.
	rome.must(t, "unpeer", "--remote-kubeconfig", turin.kubeconfig, "--delete-namespaces")
	if got := rome.echo(t, "leaf", "at-milan", "get", "http://localhost:8080/"); !strings.Contains(got, "pod=at-milan ") {
		t.Errorf("the pod at milan after turin has left: %s", got)
	}
	rome.must(t, "unoffload", "namespace", "leaf", "--skip-confirm")
	rome.kubectl(t, "delete", "namespace", "leaf", patiently)
	if out, err := testbed("down", "turin"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// strangers: two providers of rome that do not know each other do not reach each other's own pods through it,
// whatever one of them sends.
func strangers(t *testing.T, from, to cluster) {
	t.Helper()
	ours, theirs := rome.probeOn(t, "rome-n1"), to.probeOn(t, to.name+"-n1")
	var packets []string
	for _, source := range append(remapped(t, rome, to, []string{insider}), insider, nobody) {
		for _, target := range append(remapped(t, rome, to, []string{theirs}), theirs, ours) {
			packets = append(packets, base64.StdEncoding.EncodeToString(datagram(t, source, target)))
		}
	}
	beyond := to.capture(t, "any", "udp port "+stray)
	rome.seen(t, "any", "udp port "+stray, " > "+ours+"."+stray+":", intruder(t, from, rome, packets))
	if arrived := beyond(); arrived != "" {
		t.Errorf("%s reaches through rome, at %s:\n%s", from.name, to.name, arrived)
	}
	meet(t, rome, from) // the true gateway is heard again
}

// directly: rome's pods at two providers that are connected with each other reach each other without rome,
// where their Services say so.
func directly(t *testing.T, a, b cluster) {
	t.Helper()
	direct := func(value string) {
		rome.kubectl(t, "-n", "leaf", "annotate", "services", "--all", "--overwrite", "liqo.io/use-direct-connections="+value)
	}
	address := func(at cluster) []string {
		return []string{at.kubectl(t, "-n", "leaf-rome", "get", "pod", "at-"+at.name, "-o", "jsonpath={.status.podIP}")}
	}
	reach := func(how string, direct bool) {
		for _, way := range []struct{ from, to cluster }{{a, b}, {b, a}} {
			source := remapped(t, way.to, way.from, address(way.from))[0]
			eventually(t, "the pod at "+way.from.name+" reaches the one at "+way.to.name+" "+how, func() (string, bool) {
				got, err := rome.ask("-n", "leaf", "exec", "at-"+way.from.name, "--", "/echo", "get", "-timeout", "2s", "http://at-"+way.to.name+"/")
				return got, err == nil && strings.Contains(got, "pod=at-"+way.to.name+" ") && strings.Contains(got, "from="+source+":") == direct
			})
		}
	}
	direct("true")
	reach("directly", true)
	direct("false")
	reach("through rome", false)
}

// keeper is a pod with a volume, on the virtual node of a provider.
const keeper = `
apiVersion: v1
kind: Pod
metadata: {name: keeper, namespace: leaf}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {liqo.io/remote-cluster-id: %s}
  containers:
  - name: keeper
    image: testbed.local/echo:1
    imagePullPolicy: Never
    volumeMounts: [{name: disk, mountPath: /disk}]
  volumes: [{name: disk, persistentVolumeClaim: {claimName: kept}}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kept, namespace: leaf}
spec: {storageClassName: liqo, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
`

// changesProvider: a volume of rome moves from one provider to another, with its data.
func changesProvider(t *testing.T, from, to cluster) {
	t.Helper()
	on := func(provider cluster) {
		rome.apply(t, fmt.Sprintf(keeper, provider.name))
		rome.kubectl(t, "-n", "leaf", "wait", "pod/keeper", "--for=condition=Ready", patiently)
	}
	on(from)
	typed(t, "kept", "-n", "leaf", "exec", "-i", "keeper", "--", "/echo", "write", "/disk/name")
	rome.kubectl(t, "-n", "leaf", "delete", "pod", "keeper", patiently)
	rome.must(t, "move", "volume", "kept", "-n", "leaf", "--target-node", to.name)
	on(to)
	if got := rome.kubectl(t, "-n", "leaf", "exec", "keeper", "--", "/echo", "cat", "/disk/name"); got != "kept" {
		t.Errorf("the volume that moved from %s to %s has %q", from.name, to.name, got)
	}
	rome.kubectl(t, "-n", "leaf", "delete", "pod/keeper", "pvc/kept", patiently)
	for _, c := range []cluster{rome, from, to} {
		eventually(t, "no volume is left at "+c.name, func() (string, bool) {
			got, err := c.ask("get", "pv,pvc", "-A", "--ignore-not-found", "-o", "name")
			return got, err == nil && got == ""
		})
	}
}

// chain: milan, at which rome's pods run, uses turin as rome does.
func chain(t *testing.T, turin cluster) {
	t.Helper()
	milan.must(t, "peer", "--remote-kubeconfig", turin.kubeconfig, "--gw-server-service-type", "NodePort")
	rome.sumsUp(t, "turin", givesAll)
	milan.sumsUp(t, "turin", givesAll)
	milan.sumsUp(t, "rome", takesAll)
	for _, consumer := range []string{"rome", "milan"} {
		turin.sumsUp(t, consumer, takesAll)
	}
	directly(t, milan, turin)
	leave := milan.visits(t, "turin", "leaf") // a namespace of the name that rome offloads, too
	milan.must(t, "unpeer", "--remote-kubeconfig", turin.kubeconfig, "--delete-namespaces")
	turin.sumsUp(t, "milan", stranger)
	leave()
	rome.echo(t, "leaf", "at-turin", "get", "http://localhost:8080/")
}

// otherAddresses: a cluster joins whose pods have addresses of their own, then one whose addresses are a part of rome's.
// Each has two pod CIDRs, with a node in each. What has to be translated is, in both directions, and nothing else.
func otherAddresses(t *testing.T) {
	type addresses struct {
		claim, cidr string
		pods        []string
	}
	for _, c := range sampled(t, 1, []addresses{
		{"addresses of its own", "10.200.0.0/16", []string{"10.200.0.0/23", "10.200.2.0/23"}},
		{"a part of the addresses", "10.10.128.0/17", []string{"10.10.128.0/23", "10.10.130.0/23"}},
	}) {
		t.Run(c.claim, func(t *testing.T) { joins(t, c.cidr, c.pods) })
	}
}

// joins makes a cluster with pods in these ranges, which rome uses.
func joins(t *testing.T, cidr string, pods []string) {
	image := filepath.Join(root, "bin", "liqo-image.tar")
	if out, err := testbed("up", "--clusters", "genoa", "--nodes", "2", "--pod-cidr", "genoa="+cidr, "--image", image); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	genoa, err := known("genoa")
	if err != nil {
		t.Fatal(err)
	}
	genoa.pods = pods
	if stdout, stderr, code := genoa.install(t); code != 0 {
		t.Fatalf("install on genoa: exit code %d\n%s%s", code, stdout, stderr)
	}
	genoa.apply(t, probes)
	rome.must(t, "peer", "--remote-kubeconfig", genoa.kubeconfig, "--gw-server-service-type", "NodePort")
	for _, daemons := range []string{"probe", "host"} {
		genoa.kubectl(t, "rollout", "status", "daemonset/"+daemons, patiently)
	}
	reachEachOther(t, rome, genoa)
	for _, way := range []struct{ from, to cluster }{{rome, genoa}, {genoa, rome}} {
		for _, node := range []string{"-n1", "-n2"} {
			source, target := way.from.probeOn(t, way.from.name+node), way.to.probeOn(t, way.to.name+node)
			pod := way.from.kubectl(t, "get", "pods", "-l", "app=probe", "--field-selector", "spec.nodeName="+way.from.name+node, "-o", "name")
			got := way.from.echo(t, "default", pod, "get", "http://"+remapped(t, way.from, way.to, []string{target})[0]+":8080/")
			if seen := remapped(t, way.to, way.from, []string{source})[0]; !strings.Contains(got, "from="+seen+":") {
				t.Errorf("%s sees %s of %s not as %s:\n%s", way.to.name, source, way.from.name, seen, got)
			}
		}
	}
	leave := rome.visits(t, "genoa", "elsewhere")
	rome.must(t, "unpeer", "--remote-kubeconfig", genoa.kubeconfig, "--delete-namespaces")
	leave()
	if out, err := testbed("down", "genoa"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
