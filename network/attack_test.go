// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package network_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1beta1 "github.com/liqo-go/liqo/api/networking/v1beta1"
	"github.com/liqo-go/liqo/network"
)

const sameNames = `
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: gw, namespace: default, labels: {liqo.io/remote-cluster-id: milan}}
spec: {endpoint: {port: 51840, serviceType: NodePort}}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayClient
metadata: {name: gw, namespace: default, labels: {liqo.io/remote-cluster-id: oslo}}
spec: {endpoint: {addresses: [172.31.20.11], port: 30742, protocol: UDP}}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: gw, namespace: liqo-tenant-turin-2, labels: {liqo.io/remote-cluster-id: turin-2}}
spec: {endpoint: {port: 51840, serviceType: NodePort}}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: 2-gw, namespace: liqo-tenant-turin, labels: {liqo.io/remote-cluster-id: turin}}
spec: {endpoint: {port: 51840, serviceType: NodePort}}
`

// TestAttackNamesOfGateways: a peer names its GatewayClient as the GatewayServer of another peer in the same namespace,
// so that both have one Deployment, one key and one ServiceAccount. Peer turin names its gateway 2-gw, so that its rights
// are called like those of gateway gw of peer turin-2.
//
// Outcome: the GatewayClient is refused while the older GatewayServer is there, and its condition names that. The
// rights of the gateways of turin and turin-2 have different names, and both gateways have them.
func TestAttackNamesOfGateways(t *testing.T) {
	t.Parallel()
	c := startControllers(t, "rome")
	objects := parsed(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: liqo-tenant-turin}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: liqo-tenant-turin-2}\n---"+installed)
	for _, template := range chartTemplates(t, []byte("ipam: {podCIDR: 10.10.0.0/16, serviceCIDR: 10.110.0.0/16}")) {
		objects = append(objects, template)
	}
	for _, obj := range append(objects, parsed(t, sameNames)...) {
		create(t, c, obj)
	}
	key := client.ObjectKey{Namespace: "default", Name: "gw"}
	dialer, server, deployment := &netv1beta1.GatewayClient{}, &netv1beta1.GatewayServer{}, &appsv1.Deployment{}
	eventually(t, "the refusal of a gateway whose name is in use", func() error {
		return errors.Join(c.Get(t.Context(), key, dialer),
			equal("DuplicateName: GatewayServer default/gw has the same name, after which Deployment, keys and rights of a gateway are called; create one of the two with another name",
				message(dialer.Status.Conditions)),
			c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "gw-gw"}, deployment))
	})
	if err := errors.Join(equal("milan", deployment.Labels["liqo.io/remote-cluster-id"]), c.Get(t.Context(), key, server)); err != nil {
		t.Error(err)
	}
	eventually(t, "the rights of three gateways", func() error {
		var bindings rbacv1.ClusterRoleBindingList
		err := c.List(t.Context(), &bindings, client.HasLabels{"networking.liqo.io/gateway-name"})
		var bound []string
		for _, b := range bindings.Items {
			for _, s := range b.Subjects {
				bound = append(bound, s.Namespace+"/"+s.Name)
			}
		}
		slices.Sort(bound)
		return errors.Join(err, equal([]string{"default/gw", "liqo-tenant-turin-2/gw", "liqo-tenant-turin/2-gw"}, bound))
	})

	must(t, c.Delete(t.Context(), server))
	eventually(t, "the gateway whose name is free", func() error {
		return c.Get(t.Context(), key, &netv1beta1.WgGatewayClient{}) // the name is free
	})
}

const protectedPods = `
apiVersion: v1
kind: Namespace
metadata: {name: liqo-tenant-milan}
---
apiVersion: v1
kind: Node
metadata: {name: rome-1}
spec: {podCIDRs: [10.10.1.0/24], podCIDR: 10.10.1.0/24}
---
apiVersion: v1
kind: Pod
metadata: {name: proxy, namespace: liqo}
spec: {nodeName: rome-1, containers: [{name: proxy, image: none}]}
status: {phase: Running, podIP: 10.10.1.2, podIPs: [{ip: 10.10.1.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: gw, namespace: liqo-tenant-milan, labels: {liqo.io/managed: "true", networking.liqo.io/component: gateway}}
spec: {nodeName: rome-1, containers: [{name: gateway, image: none}]}
status: {phase: Running, podIP: 10.10.1.3, podIPs: [{ip: 10.10.1.3}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec: {nodeName: rome-1, containers: [{name: web, image: none}]}
status: {phase: Running, podIP: 10.10.1.4, podIPs: [{ip: 10.10.1.4}]}
---
apiVersion: v1
kind: Pod
metadata: {name: coredns, namespace: kube-system}
spec: {nodeName: rome-1, containers: [{name: coredns, image: none}]}
status: {phase: Running, podIP: 10.10.1.5, podIPs: [{ip: 10.10.1.5}]}
`

// TestAttackPodsThatMove: a peer opens connections to a pod of kube-system that came after the gateway, or has come to
// another address.
//
// Outcome: the node's InternalNode, which gateways read, follows what is made and deleted, and names the addresses of
// protected pods and no others.
func TestAttackPodsThatMove(t *testing.T) {
	t.Parallel()
	c := startWith(t, network.Options{ClusterID: "rome", LiqoNamespace: "liqo", ProtectedNamespaces: []string{"kube-system"}})
	objects := slices.Concat(parsed(t, installed)[1:], parsed(t, protectedPods))
	for _, obj := range objects {
		create(t, c, obj)
	}
	protects := func(want ...string) {
		t.Helper()
		eventually(t, "the protected addresses of the node", func() error {
			var node netv1beta1.InternalNode
			return errors.Join(c.Get(t.Context(), client.ObjectKey{Name: "rome-1"}, &node), equal(want, node.Spec.ProtectedIPs))
		})
	}
	protects("10.10.1.2", "10.10.1.3", "10.10.1.5")
	coredns := objects[len(objects)-1]
	must(t, c.Delete(t.Context(), coredns.DeepCopy(), client.GracePeriodSeconds(0)))
	protects("10.10.1.2", "10.10.1.3")
	moved := parsed(t, strings.ReplaceAll(protectedPods, "10.10.1.5", "10.10.1.6"))
	create(t, c, moved[len(moved)-1])
	protects("10.10.1.2", "10.10.1.3", "10.10.1.6")
}

const depended = `
apiVersion: v1
kind: Node
metadata: {name: rome-1}
status: {addresses: [{type: InternalIP, address: 172.31.10.11}]}
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec: {ports: [{port: 53, protocol: UDP}]}
---
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata: {name: milan, namespace: liqo-tenant-milan, labels: {liqo.io/remote-cluster-id: milan}}
`

// TestAttackRangesOfOurs: a peer announces the addresses of DNS servers, default gateways, nodes, the API server and the Service
// of the cluster's DNS, and parts of the networks that nodes are connected to, so that nodes send what is for them into
// the tunnel.
//
// Outcome: the peer is seen at other addresses, and no range it is seen at overlaps one of these. Where a DNS server gets
// an address in a range that is in use already, the range stays, and the Configuration names both (RangeConflict).
func TestAttackRangesOfOurs(t *testing.T) {
	t.Parallel()
	c := startControllers(t, "rome")
	objects := slices.Concat(parsed(t, installed)[1:], parsed(t, depended))
	for _, obj := range objects[:len(objects)-1] {
		create(t, c, obj)
	}
	var node netv1beta1.InternalNode
	key := client.ObjectKey{Name: "rome-1"}
	eventually(t, "the remote address of the node", func() error {
		return errors.Join(c.Get(t.Context(), key, &node), equal("172.31.10.11", node.Status.NodeIP.Remote))
	})
	before := node.DeepCopy()
	node.Status.LocalAddresses = []string{"10.0.0.53/32", "172.31.10.11/16", "192.168.0.1/32"}
	must(t, c.Status().Patch(t.Context(), &node, client.MergeFrom(before)))

	var dns, server corev1.Service
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "kube-system", Name: "kube-dns"}, &dns))
	must(t, c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "kubernetes"}, &server))
	ours := []string{"10.0.0.53/32", "192.168.0.1/32", "172.31.10.11/32", "172.31.200.0/24", dns.Spec.ClusterIP + "/32", server.Spec.ClusterIP + "/32"}
	var configuration netv1beta1.Configuration
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(objects[len(objects)-1].Object, &configuration))
	configuration.Spec.Remote = &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: append(ours, "10.20.0.0/16")}}
	must(t, c.Create(t.Context(), &configuration))
	eventually(t, "a view of each range", func() error {
		return errors.Join(c.Get(t.Context(), client.ObjectKeyFromObject(&configuration), &configuration), equal(len(ours)+1, len(configuration.Status.Views)))
	})
	for _, view := range configuration.Status.Views {
		seen := netip.MustParsePrefix(view.SeenAs)
		if slices.ContainsFunc(append(ours, "172.31.0.0/16"), func(s string) bool { return netip.MustParsePrefix(s).Overlaps(seen) }) {
			t.Errorf("%s of the peer is seen at %s", view.CIDR, seen)
		}
	}
	if last := configuration.Status.Views[len(ours)]; last.SeenAs != "10.20.0.0/16" {
		t.Errorf("%s, which is free, is seen at %s", last.CIDR, last.SeenAs)
	}

	views := configuration.Status.Views
	before = node.DeepCopy()
	node.Status.LocalAddresses = append(node.Status.LocalAddresses, "10.20.0.53/32")
	must(t, c.Status().Patch(t.Context(), &node, client.MergeFrom(before)))
	eventually(t, "the range conflict, with the same views", func() error {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(&configuration), &configuration)
		said := message(configuration.Status.Conditions)
		names := strings.HasPrefix(said, "RangeConflict: ") && strings.Contains(said, "10.20.0.0/16") && strings.Contains(said, "10.20.0.53")
		if !names {
			err = errors.Join(err, errors.New("the Configuration says: "+said))
		}
		return errors.Join(err, equal(views, configuration.Status.Views))
	})
}

// TestAttackLaterRanges: a peer announces further ranges after the peering was agreed, at which hosts of this cluster's
// administrators are: besides those it has, in place of all of them, or beside the hosts, to be remapped onto them.
//
// Outcome: they are seen remapped, from this cluster's external range upwards, until an administrator approves them. What
// was agreed is seen as before, and again when the peer announces it again.
func TestAttackLaterRanges(t *testing.T) {
	t.Parallel()
	c := startControllers(t, "rome")
	objects := slices.Concat(parsed(t, installed)[1:], parsed(t, depended))
	for _, obj := range objects[:len(objects)-1] {
		create(t, c, obj)
	}
	var configuration netv1beta1.Configuration
	must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(objects[len(objects)-1].Object, &configuration))
	announce := func(change func(*netv1beta1.Configuration), want ...string) {
		t.Helper()
		before := configuration.DeepCopy()
		change(&configuration)
		if configuration.UID == "" {
			must(t, c.Create(t.Context(), &configuration))
		} else {
			must(t, c.Patch(t.Context(), &configuration, client.MergeFrom(before)))
		}
		eventually(t, "the views of the peer", func() error {
			err := c.Get(t.Context(), client.ObjectKeyFromObject(&configuration), &configuration)
			var seen []string
			for _, view := range configuration.Status.Views {
				seen = append(seen, view.CIDR+" as "+view.SeenAs)
			}
			return errors.Join(err, equal(want, seen))
		})
	}
	pods := func(cidrs ...string) func(*netv1beta1.Configuration) {
		return func(c *netv1beta1.Configuration) {
			c.Spec.Remote = &netv1beta1.ClusterConfig{CIDR: netv1beta1.ClusterCIDR{Pod: cidrs}}
		}
	}
	const agreed = "10.20.0.0/16 as 10.20.0.0/16"
	announce(pods("10.20.0.0/16"), agreed)
	announce(pods("10.20.0.0/16", "10.99.0.0/16"), agreed, "10.99.0.0/16 as 10.71.0.0/16")
	announce(pods("10.98.0.0/24"), "10.98.0.0/24 as 10.71.0.0/24")
	announce(pods("10.20.0.0/16", "10.98.0.0/24"), agreed, "10.98.0.0/24 as 10.71.0.0/24")
	announce(func(c *netv1beta1.Configuration) {
		c.Annotations = map[string]string{"liqo.io/approved-cidrs": "10.98.0.0/24"}
	}, agreed, "10.98.0.0/24 as 10.98.0.0/24")
}

const accountTaken = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: vk-milan, namespace: default}
---
apiVersion: networking.liqo.io/v1beta1
kind: GatewayServer
metadata: {name: vk-milan, namespace: default, labels: {liqo.io/remote-cluster-id: milan}}
spec: {endpoint: {port: 51840, serviceType: NodePort}}
`

// TestAttackGatewayWithAccountOfAnother: a peering user names its GatewayServer as a ServiceAccount in its tenant
// namespace that is there already: that of the virtual kubelet, which can read what the provider answers.
//
// Outcome: the condition of the gateway's WgGatewayServer names the account. No gateway runs with the account, and it gets
// no rights of gateways.
func TestAttackGatewayWithAccountOfAnother(t *testing.T) {
	t.Parallel()
	c := startControllers(t, "rome")
	objects := parsed(t, installed)
	for _, template := range chartTemplates(t, []byte("ipam: {podCIDR: 10.10.0.0/16, serviceCIDR: 10.110.0.0/16}")) {
		objects = append(objects, template)
	}
	for _, obj := range append(objects, parsed(t, accountTaken)...) {
		create(t, c, obj)
	}
	eventually(t, "the refusal of a ServiceAccount that exists", func() error {
		var wg netv1beta1.WgGatewayServer
		err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "vk-milan"}, &wg)
		return errors.Join(err, equal("ServiceAccountExists: ServiceAccount default/vk-milan was made by somebody else; delete or rename it", message(wg.Status.Conditions)))
	})
	var bindings rbacv1.ClusterRoleBindingList
	var local rbacv1.RoleBindingList
	var deployments appsv1.DeploymentList
	for _, list := range []client.ObjectList{&bindings, &local, &deployments} {
		must(t, c.List(t.Context(), list, client.HasLabels{"networking.liqo.io/gateway-name"}))
	}
	if n := len(bindings.Items) + len(local.Items) + len(deployments.Items); n > 0 {
		t.Errorf("%d ClusterRoleBindings, %d RoleBindings, %d Deployments", len(bindings.Items), len(local.Items), len(deployments.Items))
	}
}
