// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

// cluster is what "up" makes of a name and an index.
func cluster(t *testing.T, name string, index, nodes int, distinct bool) Cluster {
	t.Helper()
	c, err := newCluster(name, index, upOptions{nodes: nodes, distinct: distinct}, []string{"/cache/pause.tar"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// All addresses that anything on the bridges can have are disjoint, for any number of
// clusters; pods and services are the same everywhere or disjoint everywhere.
func TestAddressPlan(t *testing.T) {
	for _, distinct := range []bool{false, true} {
		var clusters []Cluster
		for i := range maxClusters {
			clusters = append(clusters, cluster(t, "c"+string(rune('a'+i)), i, maxNodes, distinct))
		}
		for i, a := range clusters {
			checkOneCluster(t, a)
			for _, b := range clusters[i+1:] {
				if a.network().Overlaps(b.network()) || a.public() == b.public() {
					t.Errorf("networks of %s and %s overlap: %s %s, %s %s", a.Name, b.Name, a.network(), a.public(), b.network(), b.public())
				}
				for _, x := range []netip.Prefix{a.PodCIDR, a.ServiceCIDR} {
					for _, y := range []netip.Prefix{b.PodCIDR, b.ServiceCIDR} {
						if distinct && x.Overlaps(y) {
							t.Errorf("%s and %s are not distinct: %s, %s", a.Name, b.Name, x, y)
						}
					}
				}
				if same := a.PodCIDR == b.PodCIDR && a.ServiceCIDR == b.ServiceCIDR; same == distinct {
					t.Errorf("distinct=%v, but %s has %s, %s has %s", distinct, a.Name, a.PodCIDR, b.Name, b.PodCIDR)
				}
			}
		}
	}
}

func checkOneCluster(t *testing.T, c Cluster) {
	t.Helper()
	if c.network().Contains(registryAddress.Addr()) {
		t.Errorf("%s: %s has the address of the registry", c.Name, c.network())
	}
	if c.nodeNet().Overlaps(c.balancedNet()) || !c.network().Contains(c.nodeNet().Addr()) || !c.network().Contains(c.balancedNet().Addr()) {
		t.Errorf("%s: nodes %s and load balancer %s are not the halves of %s", c.Name, c.nodeNet(), c.balancedNet(), c.network())
	}
	seen := map[netip.Addr]bool{c.router(): true}
	var subnets, blocks []netip.Prefix
	for _, node := range c.nodes() {
		addr := c.nodeAddr(node)
		if seen[addr] || !c.nodeNet().Contains(addr) {
			t.Errorf("%s: address %s is taken or outside %s", c.nodeName(node), addr, c.nodeNet())
		}
		seen[addr] = true
		if len(c.nodeName(node)) > 15 {
			t.Errorf("%s is too long for a link", c.nodeName(node))
		}
		if node == controlPlane {
			continue
		}
		pool := c
		pool.CNI = cniPool
		subnets = addDisjoint(t, c, subnets, c.podBlocks(node)...)
		blocks = addDisjoint(t, pool, blocks, pool.podBlocks(node)...)
	}
	for _, service := range []netip.Addr{c.kubernetesService(), c.dns()} {
		if !c.ServiceCIDR.Contains(service) {
			t.Errorf("%s: %s is outside %s", c.Name, service, c.ServiceCIDR)
		}
	}
}

// addDisjoint adds the pods of another node.
func addDisjoint(t *testing.T, c Cluster, others []netip.Prefix, pods ...netip.Prefix) []netip.Prefix {
	t.Helper()
	for _, p := range pods {
		if !c.PodCIDR.Contains(p.Addr()) || p != p.Masked() {
			t.Errorf("%s: pods %s are outside %s", c.Name, p, c.PodCIDR)
		}
		for _, other := range others {
			if other.Overlaps(p) {
				t.Errorf("%s: pods %s overlap %s", c.Name, p, other)
			}
		}
		others = append(others, p)
	}
	return others
}

// What "up" makes of what exists and what is asked; the error says what to do.
func TestDesired(t *testing.T) {
	rome := cluster(t, "rome", 0, 2, false)
	rome.Port = firstPort
	milan := cluster(t, "milan", 1, 2, false)
	old := cluster(t, "pisa", 2, 2, false)
	old.Kubernetes = "1.35.4"
	for name, test := range map[string]struct {
		existing []Cluster
		ask      upOptions
		want     string // of each cluster: name index nodes pods, and the version of Kubernetes that is not the default
		err      string
	}{
		"two new clusters have the same pods": {
			ask:  upOptions{clusters: []string{"rome", "milan"}, nodes: -1},
			want: "rome 0 2 10.10.0.0/16, milan 1 2 10.10.0.0/16",
		},
		"distinct CIDRs on request": {
			ask:  upOptions{clusters: []string{"rome", "milan"}, nodes: 1, distinct: true},
			want: "rome 0 1 10.10.0.0/16, milan 1 1 10.20.0.0/16",
		},
		"a CIDR for one cluster": {
			ask:  upOptions{clusters: []string{"rome", "milan"}, nodes: 1, podCIDRs: []string{"milan=10.99.0.0/16"}},
			want: "rome 0 1 10.10.0.0/16, milan 1 1 10.99.0.0/16",
		},
		"a second up changes nothing": {
			existing: []Cluster{rome, milan}, ask: upOptions{clusters: []string{"rome", "milan"}, nodes: -1, distinct: true},
			want: "rome 0 2 10.10.0.0/16, milan 1 2 10.10.0.0/16",
		},
		"a cluster grows": {
			existing: []Cluster{rome}, ask: upOptions{clusters: []string{"rome"}, nodes: 3},
			want: "rome 0 3 10.10.0.0/16",
		},
		"a cluster without workers": {
			ask:  upOptions{clusters: []string{"kwok"}, nodes: 0},
			want: "kwok 0 0 10.10.0.0/16",
		},
		"a free index is used again": {
			existing: []Cluster{milan}, ask: upOptions{clusters: []string{"naples", "turin"}, nodes: -1},
			want: "naples 0 2 10.10.0.0/16, turin 2 2 10.10.0.0/16",
		},
		"a cluster does not shrink": {
			existing: []Cluster{rome}, ask: upOptions{clusters: []string{"rome"}, nodes: 1},
			err: "stop one with 'node stop'",
		},
		"a cluster keeps its CIDRs": {
			existing: []Cluster{rome}, ask: upOptions{clusters: []string{"rome"}, nodes: -1, podCIDRs: []string{"10.99.0.0/16"}},
			err: "run 'down rome' first",
		},
		"a cluster keeps its arguments": {
			existing: []Cluster{rome}, ask: upOptions{clusters: []string{"rome"}, nodes: -1, args: map[string][]string{"kubelet": {"--v=4"}}},
			err: "run 'down rome' first",
		},
		"a cluster keeps its CNI": {
			existing: []Cluster{rome}, ask: upOptions{clusters: []string{"rome"}, nodes: -1, cnis: []string{"rome=pool"}},
			err: "exists with CNI bridge; run 'down rome' first",
		},
		"a version of Kubernetes for one cluster": {
			ask:  upOptions{clusters: []string{"rome", "milan"}, nodes: 1, kubernetes: []string{"milan=1.36"}},
			want: "rome 0 1 10.10.0.0/16, milan 1 1 10.10.0.0/16 1.36.3",
		},
		"the last version of Kubernetes wins, also in full": {
			ask:  upOptions{clusters: []string{"rome"}, nodes: 1, kubernetes: []string{"1.36", "v1.35.4"}},
			want: "rome 0 1 10.10.0.0/16 1.35.4",
		},
		"an unknown version of Kubernetes": {
			ask: upOptions{clusters: []string{"rome"}, nodes: -1, kubernetes: []string{"1.20"}}, err: `rome: version "1.20" of Kubernetes is not known; use one of 1.34.4, 1.35.4`,
		},
		"Kubernetes of a cluster goes to the next version": {
			existing: []Cluster{old}, ask: upOptions{clusters: []string{"pisa"}, nodes: -1, kubernetes: []string{"pisa=1.36", "rome=1.37"}},
			want: "pisa 2 2 10.10.0.0/16 1.36.3",
		},
		"a second up keeps the version": {
			existing: []Cluster{old}, ask: upOptions{clusters: []string{"pisa"}, nodes: -1},
			want: "pisa 2 2 10.10.0.0/16 1.35.4",
		},
		"Kubernetes skips no version": {
			existing: []Cluster{old}, ask: upOptions{clusters: []string{"pisa"}, nodes: -1, kubernetes: []string{"1.37"}},
			err: "cluster pisa exists with Kubernetes 1.35.4, and 1.37.2 is not the next minor version; run 'down pisa' first",
		},
		"Kubernetes does not go back": {
			existing: []Cluster{old}, ask: upOptions{clusters: []string{"pisa"}, nodes: -1, kubernetes: []string{"1.34"}},
			err: "is not the next minor version",
		},
		"a CNI for another cluster is no business of this one": {
			existing: []Cluster{rome}, ask: upOptions{clusters: []string{"rome"}, nodes: -1, cnis: []string{"milan=pool"}},
			want: "rome 0 2 10.10.0.0/16",
		},
		"an unknown CNI": {
			ask: upOptions{clusters: []string{"rome"}, nodes: -1, cnis: []string{"calico"}}, err: "use one of bridge, pool, flannel, policies",
		},
		"a pool that Nodes would name": {
			ask: upOptions{clusters: []string{"rome"}, nodes: -1, cnis: []string{"pool"}, podCIDRs: []string{"10.244.0.0/16"}}, err: "choose other ranges",
		},
		"a name too long for its links": {
			ask: upOptions{clusters: []string{"constantinople"}, nodes: -1}, err: "at most 11",
		},
		"pods over the node networks": {
			ask: upOptions{clusters: []string{"rome"}, nodes: -1, podCIDRs: []string{"172.16.0.0/12"}}, err: "overlaps the node networks",
		},
		"pods over services": {
			ask: upOptions{clusters: []string{"rome"}, nodes: -1, podCIDRs: []string{"10.0.0.0/8"}}, err: "overlaps service CIDR",
		},
		"too few pod addresses": {
			ask: upOptions{clusters: []string{"rome"}, nodes: 4, podCIDRs: []string{"10.10.0.0/22"}}, err: "room for 3 nodes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := desired(test.existing, test.ask, nil)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("error %v, want one with %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, c := range got {
				words := []string{c.Name, strconv.Itoa(c.Index), strconv.Itoa(c.Nodes), c.PodCIDR.String()}
				if c.Kubernetes != kubernetesVersion {
					words = append(words, c.Kubernetes)
				}
				lines = append(lines, strings.Join(words, " "))
			}
			if s := strings.Join(lines, ", "); s != test.want {
				t.Errorf("got  %s\nwant %s", s, test.want)
			}
		})
	}
}
