// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package space

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// Cluster is one node with a pod and a gateway pod on a bridge, as a bridge CNI makes them:
//
//	pod ─┐
//	     cni0 (10.10.1.1) node ── 192.168.N.1 ── internet
//	gw ──┘
//
// All clusters use the same addresses but for the node's.
type Cluster struct {
	Node, Pod, Gateway *Space
	NodeIP, GatewayIP  netip.Addr
}

// NewCluster returns a cluster with the number N, which must be unique.
func NewCluster(t testing.TB, internet *Space, name string, number int, gatewayIP string) *Cluster {
	t.Helper()
	c := &Cluster{
		Node: New(t, name+" node"), Pod: New(t, name+" pod"), Gateway: New(t, name+" gateway"),
		NodeIP: netip.MustParseAddr(fmt.Sprintf("192.168.%d.1", number)), GatewayIP: netip.MustParseAddr(gatewayIP),
	}
	c.Node.Forwards()
	// The address is fixed, as CNIs do: otherwise the bridge takes the lowest of its ports', and
	// pods send to its former address for half a minute.
	c.Node.IP("link add cni0 address 02:00:00:00:00:01 type bridge")
	c.Node.IP("addr add 10.10.1.1/24 dev cni0")
	c.Node.IP("link set cni0 up")
	c.Plug(c.Pod, "10.10.1.2")
	c.Plug(c.Gateway, gatewayIP)
	up := fmt.Sprintf("up%d", number)
	Cable(c.Node, "eth0", internet, up)
	c.Node.IP(fmt.Sprintf("addr add %s/24 dev eth0", c.NodeIP))
	internet.IP(fmt.Sprintf("addr add 192.168.%d.254/24 dev %s", number, up))
	c.Node.IP(fmt.Sprintf("route add default via 192.168.%d.254", number))
	// These rules stand for the CNI and kube-proxy: they masquerade packets that leave the pods,
	// and forward a node port for the tunnel and a Service at 10.96.0.1 to the pod.
	c.Node.NFT(fmt.Sprintf(`table ip cni {
	chain out { type nat hook postrouting priority srcnat; oifname != "cni0" ip saddr 10.10.1.0/24 masquerade; }
	chain in { type nat hook prerouting priority dstnat;
		fib daddr type local meta l4proto { tcp, udp } th dport 51840 dnat to %s
		fib daddr type local tcp dport 30000 dnat to 10.10.1.2:80
		ip daddr 10.96.0.1 tcp dport 443 dnat to 10.10.1.2:80
	}
}`, gatewayIP))
	return c
}

// Plug connects a pod to the node's bridge.
func (c *Cluster) Plug(pod *Space, addr string) {
	veth := "veth" + strings.ReplaceAll(addr, ".", "")
	Cable(pod, "eth0", c.Node, veth)
	c.Node.IP("link set " + veth + " master cni0")
	pod.IP("addr add " + addr + "/24 dev eth0")
	pod.IP("route add default via 10.10.1.1")
}

// NewInternet returns the network between the clusters' nodes, with a server at 198.51.100.9.
func NewInternet(t testing.TB) *Space {
	t.Helper()
	s := New(t, "internet")
	s.Forwards()
	s.IP("addr add 198.51.100.9/32 dev lo")
	return s
}
