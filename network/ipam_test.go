// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/liqo-go/liqo/api"
	ipamv1alpha1 "github.com/liqo-go/liqo/api/ipam/v1alpha1"
	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network"
)

const small = `
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: small, namespace: default}
spec: {cidr: 10.98.0.0/32}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata: {name: a, namespace: default}
spec: {ip: 192.0.2.1, networkRef: {name: small}}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata: {name: b, namespace: default}
spec: {ip: 192.0.2.2, networkRef: {name: small}}
`

// TestFullNetwork: an IP that waits for an address of a full Network gets one when another IP is
// deleted.
func TestFullNetwork(t *testing.T) {
	t.Parallel()
	c := startControllers(t, "rome")
	of := func(name, reason, want string) {
		t.Helper()
		eventually(t, "the address of IP "+name, func() error {
			ip := ipamv1alpha1.IP{}
			err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &ip)
			got, _, _ := strings.Cut(message(ip.Status.Conditions), ":")
			return errors.Join(err, equal(reason, got), equal(want, ip.Status.IP))
		})
	}
	objects := parsed(t, small)
	create(t, c, objects[0])
	create(t, c, objects[1])
	of("a", "", "10.98.0.0")
	create(t, c, objects[2])
	of("b", "NetworkFull", "")
	must(t, c.Delete(t.Context(), objects[1]))
	of("b", "", "10.98.0.0")
}

const apart = `
apiVersion: v1
kind: Service
metadata: {name: liqo-proxy, namespace: liqo}
spec: {ports: [{port: 8118}]}
---
apiVersion: offloading.liqo.io/v1beta1
kind: VirtualNode
metadata: {name: milan, namespace: liqo-tenant-milan}
spec: {clusterID: milan}
---
apiVersion: authentication.liqo.io/v1beta1
kind: Tenant
metadata: {name: turin, namespace: default, labels: {liqo.io/remote-cluster-id: turin}}
spec: {clusterID: turin, publicKey: AAAA, csr: AAAA, signature: AAAA, proxyURL: "http://10.71.0.3:8118"}
---
apiVersion: authentication.liqo.io/v1beta1
kind: Tenant
metadata: {name: genoa, namespace: default, labels: {liqo.io/remote-cluster-id: genoa}}
spec: {clusterID: genoa, publicKey: AAAA, csr: AAAA, signature: AAAA}
`

// TestWhoReachesTheAPIServer: the API server is reached by the clusters at which this one has
// virtual nodes, its proxy by consumers in band. The proxy is reached for a while after the Tenant
// is gone.
func TestWhoReachesTheAPIServer(t *testing.T) {
	t.Parallel()
	c := startControllers(t, "rome")
	for _, obj := range parsed(t, installed) {
		create(t, c, obj)
	}
	ip := ipamv1alpha1.IP{}
	peers := func(name, want string) {
		t.Helper()
		eventually(t, "the peers of IP "+name, func() error {
			err := c.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: name}, &ip)
			got, limited := ip.Annotations["ipam.liqo.io/peers"]
			return errors.Join(err, equal(true, limited), equal(want, got))
		})
	}
	peers("api-server", "")
	for _, obj := range parsed(t, apart) {
		create(t, c, obj)
	}
	peers("api-server", "milan")
	peers("api-server-proxy", "turin")
	for _, obj := range parsed(t, apart)[1:] {
		must(t, c.Delete(t.Context(), obj))
	}
	peers("api-server", "")
	const former = "ipam.liqo.io/former-peers"
	eventually(t, "the former peer of IP api-server-proxy", func() error {
		err := c.Get(t.Context(), client.ObjectKey{Namespace: "liqo", Name: "api-server-proxy"}, &ip)
		return errors.Join(err, equal(true, strings.HasPrefix(ip.Annotations[former], "turin=")))
	})
	peers("api-server-proxy", "turin")
	eventually(t, "a write of the former peer", func() error { // again when the controller wrote in between
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(&ip), &ip); err != nil {
			return err
		}
		ip.Annotations[former] = "turin=1"
		return c.Update(t.Context(), &ip)
	})
	peers("api-server-proxy", "")
}

// TestExistingObjectsAreNotTakenOver: an existing Service with the name of an IP, and a ServiceAccount with that
// of a gateway, are not taken over.
func TestExistingObjectsAreNotTakenOver(t *testing.T) {
	t.Parallel()
	c := startControllers(t, "rome")
	theirs := parsed(t, `
{apiVersion: v1, kind: Service, metadata: {name: db, namespace: default}, spec: {selector: {app: db}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: server, namespace: default}}
`)
	for _, obj := range theirs {
		must(t, c.Create(t.Context(), obj))
	}
	for _, obj := range parsed(t, `
{apiVersion: ipam.liqo.io/v1alpha1, kind: Network, metadata: {name: own, namespace: default}, spec: {cidr: 10.98.0.0/24}}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: IP
metadata: {name: db, namespace: default}
spec: {ip: 192.0.2.1, networkRef: {name: own}, serviceTemplate: {spec: {ports: [{port: 5432}]}}}
---
apiVersion: networking.liqo.io/v1beta1
kind: WgGatewayClient
metadata: {name: server, namespace: default, labels: {liqo.io/remote-cluster-id: milan}}
spec: {deployment: {spec: {selector: {}, template: {spec: {containers: [{name: gateway, image: none}]}}}}}
`) {
		create(t, c, obj)
	}
	reason := func(obj client.Object, conditions *[]metav1.Condition, want string) {
		t.Helper()
		eventually(t, fmt.Sprintf("the reason %q of %s", want, obj.GetName()), func() error {
			err := c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
			got := ""
			if ready := meta.FindStatusCondition(*conditions, "Ready"); ready != nil {
				got = ready.Reason
			}
			return errors.Join(err, equal(want, got))
		})
	}
	at := metav1.ObjectMeta{Namespace: "default", Name: "db"}
	ip, gateway := &ipamv1alpha1.IP{ObjectMeta: at}, &netv1beta1.WgGatewayClient{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "server"}}
	reason(ip, &ip.Status.Conditions, "ServiceExists")
	reason(gateway, &gateway.Status.Conditions, "ServiceAccountExists")
	for _, obj := range theirs {
		now := obj.DeepCopyObject().(client.Object)
		must(t, c.Get(t.Context(), client.ObjectKeyFromObject(obj), now))
		if now.GetResourceVersion() != obj.GetResourceVersion() {
			t.Errorf("%T %s was touched: labels %v, owners %v", now, now.GetName(), now.GetLabels(), now.GetOwnerReferences())
		}
	}
}

const endpoints = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: masters, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
endpoints: [{addresses: [172.31.10.11]}, {addresses: [172.31.10.12]}]
ports: [{name: https, port: 6443}]
`

// TestAPIServerThroughEndpoints: each endpoint of the API server has an IP while it exists, and its
// Service has none.
func TestAPIServerThroughEndpoints(t *testing.T) {
	t.Parallel()
	c := startWith(t, network.Options{ClusterID: "rome", LiqoNamespace: "liqo", APIServerEndpoints: true})
	for _, obj := range parsed(t, installed) {
		create(t, c, obj)
	}
	masters := parsed(t, endpoints)[0]
	create(t, c, masters)
	of := func(want ...string) {
		t.Helper()
		eventually(t, "the addresses of the API server", func() error {
			var ips ipamv1alpha1.IPList
			err := c.List(t.Context(), &ips, client.InNamespace("liqo"), client.MatchingLabels{"ipam.liqo.io/ip-type": "api-server"})
			var got []string
			for _, ip := range ips.Items {
				// The API server of the test makes a slice of its own, kubernetes.
				if s := ip.Labels["ipam.liqo.io/endpointslice"]; s != "kubernetes" {
					got = append(got, fmt.Sprint(ip.Name, " ", s, " ", ip.Spec.IP, " ", ip.Spec.Masquerade, " ", ip.Annotations["ipam.liqo.io/port"], " ", ip.Status.IP != ""))
				}
			}
			return errors.Join(err, equal(want, got))
		})
	}
	first := "masters-172-31-10-11 masters 172.31.10.11 true 6443 true"
	of(first, "masters-172-31-10-12 masters 172.31.10.12 true 6443 true")
	live := &discoveryv1.EndpointSlice{}
	must(t, c.Get(t.Context(), client.ObjectKeyFromObject(masters), live))
	live.Endpoints = live.Endpoints[:1]
	must(t, c.Update(t.Context(), live))
	of(first)
}

const nodes = `
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: 10.30.0.7}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kubernetes-elsewhere, namespace: default, labels: {kubernetes.io/service-name: kubernetes}}
addressType: IPv4
endpoints: [{addresses: [10.50.0.7]}]
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: early, namespace: default, labels: {liqo.io/remote-cluster-id: milan}}
spec: {cidr: 10.30.0.0/16}
---
apiVersion: ipam.liqo.io/v1alpha1
kind: Network
metadata: {name: elsewhere, namespace: default, labels: {liqo.io/remote-cluster-id: milan}}
spec: {cidr: 10.50.0.0/16}
`

// TestPeersAreNotRemappedToOwnAddresses: a peer is not remapped to a range with the address of this cluster's API
// server. If a node gets an address in a granted range later, the Network reports it, and a new
// Network gets another range.
func TestPeersAreNotRemappedToOwnAddresses(t *testing.T) {
	t.Parallel()
	c := startControllers(t, "rome")
	of := func(name, reason, want string) {
		t.Helper()
		eventually(t, "the range of Network "+name, func() error {
			n := ipamv1alpha1.Network{}
			err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &n)
			got, _, _ := strings.Cut(message(n.Status.Conditions), ":")
			return errors.Join(err, equal(reason, got), equal(want, n.Status.CIDR))
		})
	}
	objects := parsed(t, nodes)
	create(t, c, objects[1])
	create(t, c, objects[3])
	of("elsewhere", "", "10.51.0.0/16")
	create(t, c, objects[2])
	of("early", "", "10.30.0.0/16")
	create(t, c, objects[0])
	of("early", "RangeConflict", "10.30.0.0/16")
	must(t, c.Delete(t.Context(), objects[2]))
	create(t, c, parsed(t, nodes)[2])
	of("early", "", "10.31.0.0/16")
}

// TestIPsOfPodsReportProblemsOnly: IPs of pods report only what they wait for, because there are many.
func TestIPsOfPodsReportProblemsOnly(t *testing.T) {
	t.Parallel()
	c := startControllers(t, "rome")
	ip := func(name string) *ipamv1alpha1.IP {
		ip := &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		ip.Labels = map[string]string{api.LabelPodName: name, api.LabelPodNamespace: "default"}
		ip.Spec = ipamv1alpha1.IPSpec{IP: "192.0.2.1", NetworkRef: &corev1.ObjectReference{Name: "later"}}
		return ip
	}
	says := func(name, want string) {
		t.Helper()
		eventually(t, "the condition of IP "+name, func() error {
			var ip ipamv1alpha1.IP
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &ip); err != nil {
				return err
			}
			said := fmt.Sprint(ip.Status.IP != "")
			for _, condition := range ip.Status.Conditions {
				said += " " + condition.Type + "=" + string(condition.Status) + ":" + condition.Reason
			}
			return equal(want, said)
		})
	}
	must(t, c.Create(t.Context(), ip("early")))
	says("early", "false Ready=False:NetworkMissing Reconciling=True:NetworkMissing")
	create(t, c, parsed(t, "{apiVersion: ipam.liqo.io/v1alpha1, kind: Network, metadata: {name: later, namespace: default}, spec: {cidr: 10.98.0.0/24}}")[0])
	says("early", "true Ready=True:Ready")
	must(t, c.Create(t.Context(), ip("fine")))
	says("fine", "true")
}

// TestManyIPs: a hundred IPs created at once get an address each, and the number of requests does
// not grow with them.
func TestManyIPs(t *testing.T) {
	t.Parallel()
	c := startControllers(t, "rome")
	const all = 100
	before := requests(t, c, listsOfIPs)
	create(t, c, parsed(t, "{apiVersion: ipam.liqo.io/v1alpha1, kind: Network, metadata: {name: large, namespace: default}, spec: {cidr: 10.98.0.0/24}}")[0])
	for i := range all {
		ip := &ipamv1alpha1.IP{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("ip-", i)}}
		ip.Spec = ipamv1alpha1.IPSpec{IP: "192.0.2.1", NetworkRef: &corev1.ObjectReference{Name: "large"}}
		must(t, c.Create(t.Context(), ip))
	}
	eventually(t, "addresses of all IPs", func() error {
		var ips ipamv1alpha1.IPList
		if err := c.List(t.Context(), &ips, client.InNamespace("default")); err != nil {
			return err
		}
		holders := map[string]string{}
		for _, ip := range ips.Items {
			if other := holders[ip.Status.IP]; other != "" && ip.Status.IP != "" {
				t.Fatalf("%s and %s have the same address %s", ip.Name, other, ip.Status.IP)
			}
			holders[ip.Status.IP] = ip.Name
		}
		delete(holders, "")
		return equal(all, len(holders))
	})
	// Twice at the start, for the cache and for the first grant, and again while the cache is late about the latter.
	if n := requests(t, c, listsOfIPs); n == 0 || n-before > all/10 {
		t.Errorf("all IPs were listed %d times for %d of them, %d times before", n, all, before)
	}
}

// TestManyOverlayAddresses shows that each of many nodes created at once gets its own address in the overlay,
// and that the controller does not list all InternalNodes from the API server for each of them.
func TestManyOverlayAddresses(t *testing.T) {
	t.Parallel()
	const lists = `apiserver_request_total\{.*resource="internalnodes",scope="cluster".*verb="LIST".*\} (\d+)`
	c := startControllers(t, "rome")
	for _, obj := range parsed(t, installed) {
		create(t, c, obj)
	}
	const all = 60
	before, own := requests(t, c, lists), 0
	for i := range all {
		must(t, c.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i)}}))
	}
	eventually(t, "addresses of all nodes", func() error {
		var nodes netv1beta1.InternalNodeList
		own++
		if err := c.List(t.Context(), &nodes); err != nil {
			return err
		}
		holders := map[string]string{}
		for _, n := range nodes.Items {
			if other := holders[n.Spec.Interface.Node.IP]; other != "" {
				t.Fatalf("%s and %s have the same address %s", n.Name, other, n.Spec.Interface.Node.IP)
			}
			holders[n.Spec.Interface.Node.IP] = n.Name
		}
		return equal(all, len(holders))
	})
	if n := requests(t, c, lists) - before - own; n > all/10 {
		t.Errorf("all InternalNodes were listed %d times for %d of them", n, all)
	}
}

// listsOfIPs matches how often all IPs were listed.
const listsOfIPs = `apiserver_request_total\{.*resource="ips",scope="cluster".*verb="LIST".*\} (\d+)`

// requests returns the sum of the counters of an API server that a pattern matches. It may have served
// other tests before.
func requests(t *testing.T, c cluster, pattern string) (sum int) {
	t.Helper()
	http, err := rest.HTTPClientFor(c.Config)
	must(t, err)
	answer, err := http.Get(c.Config.Host + "/metrics")
	must(t, err)
	defer answer.Body.Close()
	metrics, err := io.ReadAll(answer.Body)
	must(t, err)
	for _, found := range regexp.MustCompile(pattern).FindAllSubmatch(metrics, -1) {
		n, err := strconv.Atoi(string(found[1]))
		must(t, err)
		sum += n
	}
	return sum
}
