// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// nat is a router with one public address in front of a cluster: what leaves has that
// address, and nothing gets in but to mapped ports.
type nat struct {
	Cluster  string
	Mappings []mapping `json:",omitempty"`
}

// mapping forwards a port of the public address.
type mapping struct {
	Port   transport
	Target netip.AddrPort
}

func natChains(nats []nat, clusters []Cluster) string {
	var reach, arrive, closed, leave []string
	for _, n := range nats {
		c := byName(clusters, n.Cluster)
		in := fmt.Sprintf("iifname != %[1]q oifname %[1]q ct direction original ", c.bridge())
		reach = append(reach, in+"ct status dnat accept", in+"drop")
		for _, m := range n.Mappings {
			arrive = append(arrive, fmt.Sprintf("ip daddr %s %s dport %d dnat to %s", c.public(), m.Port.Protocol, m.Port.Port, m.Target))
		}
		closed = append(closed, fmt.Sprintf("ip daddr %s drop", c.public()))
		leave = append(leave,
			fmt.Sprintf("ip saddr %s oifname != %q snat to %s", c.network(), c.bridge(), c.public()),
			// The cluster's own way to its mapped ports.
			fmt.Sprintf("ip saddr %s ct status dnat snat to %s", c.network(), c.public()))
	}
	return chain("reach", "filter hook forward priority filter", reach) +
		chain("arrive", "nat hook prerouting priority dstnat", arrive) +
		chain("closed", "filter hook prerouting priority dstnat + 10", closed) +
		chain("leave", "nat hook postrouting priority srcnat", leave)
}

// natOf finds the router of a cluster, nil when there is none.
func (in *internet) natOf(cluster string) *nat {
	i := slices.IndexFunc(in.NATs, func(n nat) bool { return n.Cluster == cluster })
	if i < 0 {
		return nil
	}
	return &in.NATs[i]
}

// forward maps a port, in place of what it led to before.
func (n *nat) forward(m mapping) {
	n.close(m.Port)
	n.Mappings = append(n.Mappings, m)
}

func (n *nat) close(port transport) {
	n.Mappings = slices.DeleteFunc(n.Mappings, func(m mapping) bool { return m.Port == port })
}

const natUsage = `usage: nat on|off <cluster>
       nat forward <cluster> udp/40000 <node>:30123 | <address>:<port>
       nat close <cluster> udp/40000`

func runNAT(_ context.Context, t Testbed, _ options, args []string) error {
	arguments := map[string]int{"on": 2, "off": 2, "forward": 4, "close": 3}
	if len(args) == 0 || arguments[args[0]] != len(args) {
		return fmt.Errorf("%s", natUsage)
	}
	clusters, err := t.selectClusters(args[1:2])
	if err != nil {
		return err
	}
	c := clusters[0]
	if err := t.changeInternet(func(in *internet) error { return in.changeNAT(c, args) }); err != nil {
		return err
	}
	// Forgotten connections are translated anew: a change counts for all packets at once.
	if _, err := t.inNet(inetSpace, "", "conntrack", "-F"); err != nil {
		return err
	}
	switch args[0] {
	case "on":
		fmt.Println(c.public())
	case "forward":
		fmt.Printf("%s:%s\n", c.public(), strings.SplitN(args[2], "/", 2)[1])
	}
	return nil
}

// changeNAT does one of the verbs, whose arguments are complete.
func (in *internet) changeNAT(c Cluster, args []string) error {
	n := in.natOf(c.Name)
	switch {
	case args[0] == "off":
		in.NATs = slices.DeleteFunc(in.NATs, func(n nat) bool { return n.Cluster == c.Name })
		return nil
	case args[0] == "on" && n == nil:
		in.NATs = append(in.NATs, nat{Cluster: c.Name})
		return nil
	case args[0] == "on":
		return nil
	case n == nil:
		return fmt.Errorf("cluster %[1]s is not behind NAT; run 'nat on %[1]s' first", c.Name)
	}
	port, err := parseTransport(args[2])
	if err != nil || port.Port == 0 {
		return fmt.Errorf("port %q: write it as udp/40000 or tcp/443", args[2])
	}
	if args[0] == "close" {
		n.close(port)
		return nil
	}
	target, err := c.target(args[3])
	if err != nil {
		return err
	}
	n.forward(mapping{port, target})
	return nil
}

// target reads n1:30123, cp:6443 or 172.31.10.11:30123.
func (c Cluster) target(s string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(s, ":")
	if node, err := c.node(host); err == nil {
		host = c.nodeAddr(node).String()
	}
	target, err := netip.ParseAddrPort(host + ":" + port)
	if err != nil || !c.network().Contains(target.Addr()) || target.Port() == 0 {
		return target, fmt.Errorf("target %q: write a node of %s and a port, as n1:30123, or an address in %s and a port", s, c.Name, c.network())
	}
	return target, nil
}
