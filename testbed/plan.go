// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// controlPlane is the name of the node that runs the control plane; it has no
// kubelet and no Node object. Workers are called n1, n2, …
const controlPlane = "cp"

// apiPort is where every API server listens on its node address.
const apiPort = 6443

// The address plan. Node networks of all clusters are disjoint parts of 172.31.0.0/16:
//
//	172.31.<10·(index+1)>.1     router towards the other clusters
//	172.31.<10·(index+1)>.10    control plane
//	172.31.<10·(index+1)>.10+N  worker nN
//	172.31.<10·(index+1)+1>.0   /24 of the load balancer
//	172.31.0.1                  the registry, of all clusters
//
// Pods and services have the same addresses in every cluster unless the caller asks
// for others: two clusters that join usually did not coordinate their addresses.
const (
	maxClusters = 9 // pods 10.10 to 10.90, services 10.110 to 10.190 when they are distinct
	maxNodes    = 200
)

// The shapes of a cluster's pod network.
const (
	// cniBridge: pods on a bridge, with addresses of their Node's podCIDR.
	cniBridge = "bridge"
	// cniPool: pods behind routed links, with addresses of blocks of one pool, several
	// blocks on each node; the podCIDRs of Nodes say something else.
	cniPool = "pool"
	// cniFlannel: pods on a bridge, with addresses of their Node's podCIDR. Traffic between nodes goes by flannel's VXLAN,
	// and flannel masquerades what pods send to anything but pods.
	cniFlannel = "flannel"
	// cniPolicies is cniBridge with kube-router's controller on each node, which enforces NetworkPolicies.
	cniPolicies = "policies"
)

// cnis are all shapes.
var cnis = []string{cniBridge, cniPool, cniFlannel, cniPolicies}

// blockBits is the size of the pool's blocks.
const blockBits = 26

// unusedCIDR is what Nodes of a cluster with a pool say, and no pod has.
var unusedCIDR = netip.MustParsePrefix("10.244.0.0/16")

// nodeMaskBits is the size of the part of the pod CIDR that belongs to one node.
const nodeMaskBits = 24

// Cluster is what a cluster was created with. It is kept in <dir>/<name>/cluster.json
// and does not change while the cluster exists, except that Nodes and Kubernetes may grow.
type Cluster struct {
	Name        string
	Index       int          // which node network; unique on one testbed
	Nodes       int          // workers, n1 to n<Nodes>
	Port        int          // loopback TCP port of the machine that leads to the API server
	PodCIDR     netip.Prefix // IPv4, at most /23
	CNI         string       `json:",omitempty"` // one of cnis; "": cniBridge
	Kubernetes  string       // version of one of releases; "up" may raise it
	ServiceCIDR netip.Prefix // IPv4
	Images      []string     // archives every worker imports before its kubelet starts
	// Args are additional arguments by process name; a later flag wins over ours.
	Args map[string][]string
}

var clusterName = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,9}[a-z0-9])?$`)

// validate tells what makes a cluster impossible to start.
func (c Cluster) validate() error {
	if !clusterName.MatchString(c.Name) {
		// 11 = 15, the longest name of a link, less "-n99".
		return fmt.Errorf("cluster name %q: use at most 11 lower-case letters, digits and '-', starting with a letter", c.Name)
	}
	if c.Nodes < 0 || c.Nodes > maxNodes {
		return fmt.Errorf("cluster %s: %d nodes; use 0 to %d", c.Name, c.Nodes, maxNodes)
	}
	if c.Index < 0 || c.Index >= maxClusters {
		return fmt.Errorf("cluster %s: more than %d clusters; remove one with 'down'", c.Name, maxClusters)
	}
	for _, p := range []netip.Prefix{c.PodCIDR, c.ServiceCIDR} {
		if !p.Addr().Is4() || p != p.Masked() {
			return fmt.Errorf("cluster %s: %s is not an IPv4 network", c.Name, p)
		}
		if p.Overlaps(netip.MustParsePrefix("172.31.0.0/16")) {
			return fmt.Errorf("cluster %s: %s overlaps the node networks 172.31.0.0/16", c.Name, p)
		}
	}
	if c.CNI != "" && !slices.Contains(cnis, c.CNI) {
		return fmt.Errorf("cluster %s: CNI %q; use one of %s", c.Name, c.CNI, strings.Join(cnis, ", "))
	}
	if c.CNI == cniPool && (c.PodCIDR.Overlaps(unusedCIDR) || c.ServiceCIDR.Overlaps(unusedCIDR)) {
		return fmt.Errorf("cluster %s: with CNI %s, %s is for the podCIDRs of Nodes; choose other ranges", c.Name, cniPool, unusedCIDR)
	}
	if c.PodCIDR.Overlaps(c.ServiceCIDR) {
		return fmt.Errorf("cluster %s: pod CIDR %s overlaps service CIDR %s", c.Name, c.PodCIDR, c.ServiceCIDR)
	}
	if have := 1<<max(0, nodeMaskBits-c.PodCIDR.Bits()) - 1; c.Nodes > have {
		return fmt.Errorf("cluster %s: pod CIDR %s has room for %d nodes of a /%d each", c.Name, c.PodCIDR, have, nodeMaskBits)
	}
	if c.ServiceCIDR.Bits() > 28 {
		return fmt.Errorf("cluster %s: service CIDR %s is too small; use a /28 or larger", c.Name, c.ServiceCIDR)
	}
	return nil
}

// defaultCIDRs are the pod and the service CIDR of a cluster: the same for all, or,
// when distinct, disjoint ones chosen by the cluster's index.
func defaultCIDRs(index int, distinct bool) (pods, services netip.Prefix) {
	if !distinct {
		index = 0
	}
	block := func(second int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(second), 0, 0}), 16)
	}
	return block(10 * (index + 1)), block(100 + 10*(index+1))
}

// release names where the programs of the cluster's version lie.
func (c Cluster) release() release { return release{version: c.Kubernetes} }

// nodeNet is the network of the cluster's nodes.
func (c Cluster) nodeNet() netip.Prefix {
	return netip.PrefixFrom(c.nodeNetAddr(0), 24)
}

func (c Cluster) nodeNetAddr(last int) netip.Addr {
	return netip.AddrFrom4([4]byte{172, 31, byte(10 * (c.Index + 1)), byte(last)})
}

// router is the cluster's way out, an address of its bridge.
func (c Cluster) router() netip.Addr { return c.nodeNetAddr(1) }

// bridge is the name of the link that joins the cluster's nodes.
func (c Cluster) bridge() string { return "br-" + c.Name }

// apiAddr is the API server's address on the node network.
func (c Cluster) apiAddr() netip.Addr { return c.nodeAddr(controlPlane) }

// kubernetesService is the first service address, which the API server takes.
func (c Cluster) kubernetesService() netip.Addr { return c.ServiceCIDR.Addr().Next() }

// dns is the address of the cluster's DNS service, the tenth as everywhere.
func (c Cluster) dns() netip.Addr { return addrAt(c.ServiceCIDR, 10) }

// workers are the names of the nodes with a kubelet.
func (c Cluster) workers() []string {
	var names []string
	for i := range c.Nodes {
		names = append(names, "n"+strconv.Itoa(i+1))
	}
	return names
}

// nodes are all nodes, the control plane first.
func (c Cluster) nodes() []string { return append([]string{controlPlane}, c.workers()...) }

// nodeName is the name of a node outside its cluster: host name, Node object, link.
func (c Cluster) nodeName(node string) string { return c.Name + "-" + node }

// nodeAddr is the address of a node of this cluster.
func (c Cluster) nodeAddr(node string) netip.Addr { return c.nodeNetAddr(10 + nodeNumber(node)) }

// nodeCIDR is the range that the podCIDRs of Nodes are parts of.
func (c Cluster) nodeCIDR() netip.Prefix {
	if c.CNI == cniPool {
		return unusedCIDR
	}
	return c.PodCIDR
}

// podSubnet is the podCIDR of a worker's Node.
func (c Cluster) podSubnet(node string) netip.Prefix {
	return netip.PrefixFrom(addrAt(c.nodeCIDR(), nodeNumber(node)<<(32-nodeMaskBits)), nodeMaskBits)
}

// podBlocks are where the addresses of a worker's pods come from. Those of a pool lie in
// both of its halves, beside those of other workers.
func (c Cluster) podBlocks(node string) []netip.Prefix {
	if c.CNI != cniPool {
		return []netip.Prefix{c.podSubnet(node)}
	}
	n, half := nodeNumber(node)<<(32-blockBits), 1<<(31-c.PodCIDR.Bits())
	return []netip.Prefix{
		netip.PrefixFrom(addrAt(c.PodCIDR, n), blockBits),
		netip.PrefixFrom(addrAt(c.PodCIDR, half+n), blockBits),
	}
}

// node finds a node by n1 or <cluster>-n1.
func (c Cluster) node(name string) (string, error) {
	short := strings.TrimPrefix(name, c.Name+"-")
	if !slices.Contains(c.nodes(), short) {
		return "", fmt.Errorf("cluster %s has no node %q; it has %s", c.Name, name, strings.Join(c.nodes(), ", "))
	}
	return short, nil
}

// nodeNumber is N of nN, and 0 of the control plane.
func nodeNumber(node string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(node, "n"))
	if err != nil {
		return 0
	}
	return n
}

// addrAt is the address offset places after the network's own.
func addrAt(p netip.Prefix, offset int) netip.Addr {
	b := p.Addr().As4()
	v := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	v += uint32(offset)
	return netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
}
