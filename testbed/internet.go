// Copyright The Liqo Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// internet is what users changed between the clusters, kept in .inet/internet.json. All
// of it is one nftables table and a few routing rules of the namespace "inet", always
// written anew as a whole, so that taking one back cannot leave a part of it. It dies
// with the namespace, and what concerns a cluster with the cluster.
type internet struct {
	Faults []fault           `json:",omitempty"`
	NATs   []nat             `json:",omitempty"`
	Names  map[string]string `json:",omitempty"` // address by DNS name
}

// inetDir begins with a dot: no cluster can be called so.
func (t Testbed) inetDir() string      { return filepath.Join(t.Dir, ".inet") }
func (t Testbed) internetFile() string { return filepath.Join(t.inetDir(), "internet.json") }

func (t Testbed) internet() (internet, error) {
	var in internet
	b, err := os.ReadFile(t.internetFile())
	if errors.Is(err, fs.ErrNotExist) {
		return in, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &in)
	}
	if err != nil {
		return in, fmt.Errorf("read %s: %w; remove the clusters with 'down --all'", t.internetFile(), err)
	}
	clusters, err := t.clusters()
	return in.among(clusterNames(clusters)), err
}

// changeInternet changes what is kept, then the kernel. When the kernel refuses, what
// was before stays written down.
func (t Testbed) changeInternet(change func(*internet) error) error {
	unlock, err := t.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return t.changeInternetLocked(change)
}

func (t Testbed) changeInternetLocked(change func(*internet) error) error {
	in, err := t.internet()
	if err != nil {
		return err
	}
	if err := errors.Join(change(&in), in.check()); err != nil {
		return err
	}
	if err := t.programInternet(in); err != nil {
		return err
	}
	b, err := json.MarshalIndent(in, "", "  ")
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(t.inetDir(), "hosts"), []byte(namesFile(in)), 0o644); err != nil {
		return err
	}
	return writeFile(t.internetFile(), append(b, '\n'), 0o644)
}

// forgetRemoved takes away what concerned clusters that are no more.
func (t Testbed) forgetRemoved() error {
	if _, err := os.Stat(t.internetFile()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return t.changeInternetLocked(func(*internet) error { return nil })
}

// check refuses a delay together with NAT: the relay's packets would be translated twice.
func (in internet) check() error {
	for _, f := range in.Faults {
		if f.Delay > 0 && (in.natOf(f.From) != nil || in.natOf(f.To) != nil) {
			return fmt.Errorf("%s → %s: packets of a cluster behind NAT are not delayed; run 'fault heal' or 'nat off' first", f.From, f.To)
		}
	}
	return nil
}

// programInternet makes the kernel do what is asked.
func (t Testbed) programInternet(in internet) error {
	clusters, err := t.clusters()
	if err != nil {
		return err
	}
	if _, err := t.inNet(inetSpace, internetRules(in, clusters), "nft", "-f", "-"); err != nil {
		return err
	}
	if err := t.relayPaths(in); err != nil {
		return err
	}
	return t.limitPaths(in, clusters)
}

// internetRules are the table between the clusters; none while nothing is changed.
func internetRules(in internet, clusters []Cluster) string {
	const table = "table ip testbed-internet"
	rules := table + "\ndelete " + table + "\n"
	chains := faultChains(in.Faults, clusters) + natChains(in.NATs, clusters)
	if chains == "" {
		return rules
	}
	return rules + table + " {\n" + chains + "}\n"
}

// chain is a base chain; "" without rules.
func chain(name, hook string, rules []string) string {
	if len(rules) == 0 {
		return ""
	}
	return fmt.Sprintf("\tchain %s {\n\t\ttype %s;\n\t\t%s\n\t}\n", name, hook, strings.Join(rules, "\n\t\t"))
}

// byName finds a cluster that is known to exist.
func byName(clusters []Cluster, name string) Cluster {
	return clusters[slices.IndexFunc(clusters, func(c Cluster) bool { return c.Name == name })]
}

// among is the internet of the clusters that there are.
func (in internet) among(names []string) internet {
	in.Faults = slices.DeleteFunc(in.Faults, func(f fault) bool {
		return !slices.Contains(names, f.From) || !slices.Contains(names, f.To)
	})
	in.NATs = slices.DeleteFunc(in.NATs, func(n nat) bool { return !slices.Contains(names, n.Cluster) })
	return in
}

// describe says what is changed, a line each.
func (in internet) describe(clusters []Cluster) []string {
	var lines []string
	for _, f := range in.Faults {
		lines = append(lines, f.String())
	}
	for _, n := range in.NATs {
		lines = append(lines, fmt.Sprintf("%s is behind NAT at %s", n.Cluster, byName(clusters, n.Cluster).public()))
		for _, m := range n.Mappings {
			lines = append(lines, fmt.Sprintf("%s %s leads to %s", byName(clusters, n.Cluster).public(), m.Port, m.Target))
		}
	}
	for line := range strings.Lines(namesFile(in)) {
		lines = append(lines, "name "+strings.TrimSpace(line))
	}
	return lines
}

// transport is a protocol and perhaps a port of it, written udp/51820, udp or icmp.
type transport struct {
	Protocol string
	Port     uint16 `json:",omitempty"` // 0: all
}

func parseTransport(s string) (transport, error) {
	protocol, port, ported := strings.Cut(s, "/")
	p := transport{Protocol: protocol}
	n, err := strconv.ParseUint(port, 10, 16)
	known := slices.Contains([]string{"udp", "tcp"}, protocol) || protocol == "icmp" && !ported
	if !known || ported && (err != nil || n == 0) {
		return p, fmt.Errorf("port %q: write it as udp/51820, tcp/443, udp, tcp or icmp", s)
	}
	p.Port = uint16(n)
	return p, nil
}

func (p transport) String() string {
	if p.Port == 0 {
		return p.Protocol
	}
	return fmt.Sprintf("%s/%d", p.Protocol, p.Port)
}

// public is the cluster's address in front of its NAT, from a network for examples.
func (c Cluster) public() netip.Addr {
	return netip.AddrFrom4([4]byte{203, 0, 113, byte(c.Index + 1)})
}

// namesFile is what CoreDNS reads, in the form of /etc/hosts.
func namesFile(in internet) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(in.Names)) {
		fmt.Fprintf(&b, "%s %s\n", in.Names[name], name)
	}
	return b.String()
}
